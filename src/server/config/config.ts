/** Validates a server's options before anything is opened, and reports all problems at once. */

import type { AccessControl } from "../../auth/access-control.ts";
import { ALLOW_ALL, createAccessControl } from "../../auth/access-control.ts";
import { loadAccounts } from "../../auth/accounts-file.ts";
import { describeValue } from "../../util/duration.ts";
import { formatHostPort } from "../../util/server-url.ts";
import type { OptionRules } from "../../util/validate.ts";
import { booleanRule, clockRule, driverRule, functionRule, isObject, noProblem } from "../../util/validate.ts";
import type { ServerLimits } from "../limits.ts";
import { DEFAULT_LIMITS, resolveLimits } from "../limits.ts";
import type { HostPort, ListenAddress } from "../net/listen-address.ts";
import { formatListenAddress, isReachableRemotely, parseHostPort, parseListenAddress } from "../net/listen-address.ts";
import type { TlsConfig } from "../net/tls-config.ts";
import { loadTlsConfig } from "../net/tls-config.ts";
import type { ServeOptions } from "./options.ts";

/** One problem with the options of a server. */
export interface ConfigProblem {
  /** The option, such as "listen" or "tls". */
  readonly option: string;
  /** The description for the user. */
  readonly message: string;
  /** The value itself is valid, but the file or directory that it names cannot be used. */
  readonly isEnvironmental: boolean;
}

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

type ReportProblem = (option: string, message: string, named?: boolean) => void;

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

/** The host part of a Host header; for an IPv6 address the part inside the brackets. */
const HOST_NAME_PATTERN = /^(?:[a-z0-9._-]{1,253}|[0-9a-f:.]{2,45})$/i;

/** Type checks of options that have no other check. */
const OPTION_CHECKS: OptionRules<ServeOptions> = {
  listen: noProblem,
  state: noProblem,
  firstStart: booleanRule,
  driver: driverRule,
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
  checkStateOptions(options, report);
  for (const name of options.httpNames ?? []) {
    if (!HOST_NAME_PATTERN.test(name))
      report("httpNames", `${describeValue(name)} is not a host name or address: leave out the scheme, the port and *`);
  }
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

function loadTls(tls: NonNullable<ServeOptions["tls"]>, report: ReportProblem): TlsConfig | null {
  for (const name of ["cert", "key"] as const) {
    if (typeof tls[name] === "string" && tls[name] !== "") continue;
    report("tls", `${name === "cert" ? "the certificate" : "the key of the certificate"} is missing: both are needed`);
    return null;
  }
  return tryOption("tls", report, () => loadTlsConfig(tls), true);
}

function loadAccess(
  access: ServeOptions["access"],
  { failuresPerMinute }: ServerLimits,
  report: ReportProblem,
): AccessControl {
  if (access === undefined) return ALLOW_ALL;
  if (!("file" in access)) return access;
  return (
    tryOption("access", report, () => createAccessControl(loadAccounts(access.file), { failuresPerMinute }), true) ??
    ALLOW_ALL
  );
}

function checkStateOptions({ driver, state, firstStart }: ServeOptions, report: ReportProblem): void {
  if (driver !== undefined) {
    if (firstStart === true)
      report(
        "firstStart",
        "it applies only to a server that keeps the locks itself, not to one in front of another store",
      );
    if (state !== undefined)
      report("state", "it applies only to a server that keeps the locks itself, not to one in front of another store");
  } else if (typeof state !== "string" || state === "") {
    report("state", `must be a directory or "none", not ${describeValue(state)}`);
  }
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
    const missing = [
      ...(hasTls ? [] : ["does not use TLS"]),
      ...(secured.credentials ? [] : ["requires no credentials"]),
    ];
    if (missing.length === 0) return;
    const finding = `${text} is reachable from other machines and ${missing.join(" and ")}`;
    if (isInsecureAllowed)
      warnings.push(`INSECURE: ${finding}: any client that can reach it can read, acquire and remove every lock`);
    else report(option, `${finding}: ${remedy}, or set insecure`);
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
  if (http !== null && isHttpReachable(http)) {
    checkAddress(
      "http",
      formatHostPort(http),
      secured.tls,
      "configure a certificate and credentials, or use a loopback address",
    );
  }
  return warnings;
}

function isHttpReachable(hostPort: HostPort): boolean {
  return isReachableRemotely({ ...hostPort, tls: false });
}

/** Null if it fails; the problem is then reported. */
function tryOption<T>(
  option: string,
  report: ReportProblem,
  work: () => T,
  isEnvironmental: boolean = false,
): T | null {
  try {
    return work();
  } catch (error) {
    for (const line of (error as Error).message.split("\n")) report(option, line, isEnvironmental);
    return null;
  }
}
