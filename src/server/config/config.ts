/** Validates a server's options before anything is opened, and reports all problems at once. */

import type { AccessControl } from "../../auth/access-control.ts";
import { ALLOW_ALL } from "../../auth/access-control.ts";
import { describeValue } from "../../util/duration.ts";
import { formatHostPort } from "../../util/server-url.ts";
import type { OptionRules } from "../../util/validate.ts";
import { booleanRule, clockRule, functionRule, isObject, noProblem } from "../../util/validate.ts";
import type { ServerLimits } from "../limits.ts";
import { DEFAULT_LIMITS, resolveLimits } from "../limits.ts";
import type { HostPort, ListenAddress } from "../net/listen-address.ts";
import { formatListenAddress, isReachableRemotely, parseHostPort, parseListenAddress } from "../net/listen-address.ts";
import type { TlsConfig } from "../net/tls-config.ts";
import type { ServeOptions } from "./options.ts";
import type { ConfigProblem, ReportProblem } from "./port-config.ts";
import {
  checkHostNames,
  checkReachable,
  HTTP_REMEDY,
  isHttpReachable,
  loadAccess,
  loadTls,
  tryOption,
} from "./port-config.ts";

/** Validated options. */
export interface ServerConfig {
  readonly addresses: readonly ListenAddress[];
  readonly http: HostPort | null;
  readonly tls: TlsConfig | null;
  readonly access: AccessControl;
  readonly limits: ServerLimits;
  /** Warnings for the operator; the server starts nevertheless. */
  readonly warnings: readonly string[];
}

/** The configuration, which is valid only if there are no problems. */
export interface ConfigResult {
  readonly config: ServerConfig;
  readonly problems: readonly ConfigProblem[];
}

/** The result for options that are no object. */
const EMPTY_CONFIG: ServerConfig = {
  addresses: [],
  http: null,
  tls: null,
  access: ALLOW_ALL,
  limits: DEFAULT_LIMITS,
  warnings: [],
};

const objectRule = (value: unknown): string | null => (isObject(value) ? null : "an object");

/** Type checks of options that have no other check. */
const OPTION_CHECKS: OptionRules<ServeOptions> = {
  listen: noProblem,
  state: noProblem,
  firstStart: booleanRule,
  access: (value) => (isObject(value) && ("onChange" in value || typeof value.file === "string") ? null : "{ file }"),
  tls: objectRule,
  http: noProblem,
  httpNames: (value) =>
    Array.isArray(value) && value.every((name) => typeof name === "string") ? null : "an array of strings",
  limits: objectRule,
  insecure: booleanRule,
  clock: clockRule,
  log: functionRule,
};

/**
 * Validates the options and reads the files that they name; opens and creates nothing.
 * @throws TypeError if the options are not an object
 */
export function resolveConfig(options: ServeOptions): ConfigResult {
  const problems: ConfigProblem[] = [];
  const report: ReportProblem = (option, message, isEnvironmental = false) =>
    void problems.push({ option, message, isEnvironmental });
  checkOptionTypes(options, report);
  if (problems.length > 0) return { config: EMPTY_CONFIG, problems };
  const addresses = parseAddresses(options.listen, report);
  const http = options.http === undefined ? null : tryOption("http", report, () => parseHostPort(options.http));
  const tls = options.tls === undefined ? null : loadTls(options.tls, report);
  const limits = tryOption("limits", report, () => resolveLimits(options.limits)) ?? DEFAULT_LIMITS;
  const access = loadAccess(options.access, limits, report);
  checkStateOption(options, report);
  checkHostNames(options.httpNames ?? [], report);
  const secured = { tls: options.tls !== undefined, credentials: options.access !== undefined };
  const warnings = [
    ...(tls?.warnings ?? []),
    ...checkExposure(addresses, http, secured, options.insecure === true, report),
  ];
  if (
    secured.tls &&
    !addresses.some((address) => "tls" in address && address.tls) &&
    (http === null || !isHttpReachable(http))
  ) {
    warnings.push("a certificate is set, but no address uses TLS: listen on holdfasts://host:port");
  }
  return { config: { addresses, http, tls, access, limits, warnings }, problems };
}

/** Options from JavaScript may have any type, and a misspelled `acess` must not start a server without credentials. */
function checkOptionTypes(options: ServeOptions, report: ReportProblem): void {
  if (!isObject(options)) throw new TypeError(`options must be an object, not ${describeValue(options)}`);
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(OPTION_CHECKS, name)) report(name, "unknown option of serve");
  }
  for (const [name, check] of Object.entries(OPTION_CHECKS)) {
    const value = options[name];
    const expected = value === undefined ? null : check(value);
    // the value could be a credential instead of a file name
    if (expected !== null)
      report(name, `it must be ${expected}${name === "access" ? "" : `, not ${describeValue(value)}`}`);
  }
}

function parseAddresses(listen: unknown, report: ReportProblem): ListenAddress[] {
  const texts: readonly unknown[] = Array.isArray(listen) ? listen : [listen];
  if (texts.length === 0)
    report(
      "listen",
      "no address to listen on: give holdfast+unix:/path, holdfast://host:port or holdfasts://host:port",
    );
  const addresses = texts.flatMap((text) => tryOption("listen", report, () => parseListenAddress(text)) ?? []);
  const seenTexts = new Set<string>();
  for (const address of addresses) {
    const text = formatListenAddress(address);
    if (seenTexts.has(text) && ("path" in address || address.port !== 0)) report("listen", `${text} is given twice`);
    seenTexts.add(text);
  }
  return addresses;
}

function checkStateOption({ state }: ServeOptions, report: ReportProblem): void {
  if (typeof state !== "string" || state === "")
    report("state", `must be a directory or "none", not ${describeValue(state)}`);
}

/** An address that other machines can reach needs TLS and credentials, or the explicit option `insecure`. */
function checkExposure(
  addresses: readonly ListenAddress[],
  http: HostPort | null,
  secured: { readonly tls: boolean; readonly credentials: boolean },
  isInsecureAllowed: boolean,
  report: ReportProblem,
): string[] {
  const warnings: string[] = [];
  const checkAddress = (option: string, text: string, hasTls: boolean, remedy: string): void => {
    const warning = checkReachable({ option, text, hasTls, remedy }, secured.credentials, isInsecureAllowed, report);
    if (warning !== null) warnings.push(warning);
  };
  for (const address of addresses) {
    if (!isReachableRemotely(address) || "path" in address) continue;
    const hostPort = formatHostPort(address);
    const remedy = address.tls
      ? "configure credentials"
      : `listen on holdfasts://${hostPort}, with a certificate and credentials`;
    checkAddress("listen", formatListenAddress(address), address.tls, remedy);
  }
  for (const address of addresses) {
    if ("path" in address || !address.tls || secured.tls) continue;
    report("listen", `${formatListenAddress(address)} needs a certificate and its key`);
  }
  if (http !== null && isHttpReachable(http)) checkAddress("http", formatHostPort(http), secured.tls, HTTP_REMEDY);
  return warnings;
}
