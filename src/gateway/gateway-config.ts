/** The options of a gateway, and their check: all problems at once, before anything is opened. */

import { readFileSync } from "node:fs";
import type { AccessControl } from "../auth/access-control.ts";
import type { ConfigProblem, ReportProblem } from "../server/config/port-config.ts";
import {
  checkHostNames,
  checkReachable,
  HTTP_REMEDY,
  isHttpReachable,
  loadAccess,
  loadTls,
  tryOption,
} from "../server/config/port-config.ts";
import type { ServerLimits } from "../server/limits.ts";
import { DEFAULT_LIMITS, resolveLimits } from "../server/limits.ts";
import type { Logger } from "../server/logger.ts";
import type { HostPort } from "../server/net/listen-address.ts";
import { parseHostPort } from "../server/net/listen-address.ts";
import type { TlsConfig, TlsFiles } from "../server/net/tls-config.ts";
import type { Driver } from "../spi/driver.ts";
import type { Clock } from "../util/clock.ts";
import { formatHostPort } from "../util/server-url.ts";
import type { DashboardSettings } from "./dashboard/dashboard.ts";

export interface GatewayOptions {
  /** The store. The gateway opens and closes the driver. */
  readonly driver: Driver;
  /** The store in messages for people, without a password. Default: the name of its driver. */
  readonly storeName?: string;
  /** Where to serve HTTP: "127.0.0.1:7421", with TLS unless the address is a loopback address. */
  readonly http: string;
  /** Host names that clients may use, besides the address and the names in its certificate. */
  readonly httpNames?: readonly string[];
  /** Which client may do what; a file is read again by reload(). Default: every client may do everything. */
  readonly access?: AccessControl | { readonly file: string };
  readonly tls?: TlsFiles;
  /** Limits that differ from the defaults. */
  readonly limits?: Partial<ServerLimits>;
  /** The file of the key that all gateways of the store have. Default: only this gateway accepts its references. */
  readonly referenceKeyFile?: string;
  /** The pages of the dashboard. */
  readonly dashboard?: DashboardSettings;
  /** Allows other machines to connect without TLS or without credentials. Default false. */
  readonly insecure?: boolean;
  /** The clock, for tests. Default: the system clock. */
  readonly clock?: Clock;
  readonly log: Logger;
}

/** Validated options. */
export interface GatewayConfig {
  readonly http: HostPort;
  readonly tls: TlsConfig | null;
  readonly access: AccessControl;
  readonly limits: ServerLimits;
  readonly referenceKey: Buffer | null;
  /** Warnings for the operator; the gateway starts nevertheless. */
  readonly warnings: readonly string[];
}

/** A shorter key could be guessed. */
const MIN_KEY_BYTES = 32;

/** Checks the options and reads the files that they name. The configuration is valid only if there are no problems. */
export function resolveGatewayConfig(options: Omit<GatewayOptions, "driver" | "log" | "clock">): {
  readonly config: GatewayConfig;
  readonly problems: readonly ConfigProblem[];
} {
  const problems: ConfigProblem[] = [];
  const report: ReportProblem = (option, message, isEnvironmental = false) =>
    void problems.push({ option, message, isEnvironmental });
  const http = tryOption("http", report, () => parseHostPort(options.http)) ?? { host: "127.0.0.1", port: 0 };
  const tls = options.tls === undefined ? null : loadTls(options.tls, report);
  const limits = tryOption("limits", report, () => resolveLimits(options.limits)) ?? DEFAULT_LIMITS;
  const access = loadAccess(options.access, limits, report);
  const { referenceKeyFile } = options;
  const referenceKey =
    referenceKeyFile === undefined
      ? null
      : tryOption("referenceKey", report, () => readReferenceKey(referenceKeyFile), true);
  checkHostNames(options.httpNames ?? [], report);
  const warnings = [...(tls?.warnings ?? [])];
  if (isHttpReachable(http)) {
    const address = {
      option: "http",
      text: formatHostPort(http),
      hasTls: options.tls !== undefined,
      remedy: HTTP_REMEDY,
    };
    const warning = checkReachable(address, options.access !== undefined, options.insecure === true, report);
    if (warning !== null) warnings.push(warning);
  }
  return { config: { http, tls, access, limits, referenceKey, warnings }, problems };
}

/** @throws Error if the file cannot be read, or contains too little */
function readReferenceKey(path: string): Buffer {
  const key = readFileSync(path);
  if (key.length < MIN_KEY_BYTES)
    throw new Error(
      `${path} must have at least ${MIN_KEY_BYTES} random bytes, such as \`head -c 32 /dev/urandom\` gives`,
    );
  return key;
}
