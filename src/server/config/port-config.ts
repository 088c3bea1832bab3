/** The check of what a server and a gateway have in common: accounts, certificates, names, and who can reach a port. */

import type { AccessControl } from "../../auth/access-control.ts";
import { ALLOW_ALL, createAccessControl } from "../../auth/access-control.ts";
import { loadAccounts } from "../../auth/accounts-file.ts";
import { describeValue } from "../../util/duration.ts";
import type { ServerLimits } from "../limits.ts";
import type { HostPort } from "../net/listen-address.ts";
import { isReachableRemotely } from "../net/listen-address.ts";
import type { TlsConfig, TlsFiles } from "../net/tls-config.ts";
import { loadTlsConfig } from "../net/tls-config.ts";

/** One problem with the options of a server. */
export interface ConfigProblem {
  /** The option, such as "listen" or "tls". */
  readonly option: string;
  /** The description for the user. */
  readonly message: string;
  /** The value itself is valid, but the file or directory that it names cannot be used. */
  readonly isEnvironmental: boolean;
}

export type ReportProblem = (option: string, message: string, isEnvironmental?: boolean) => void;

/** The host part of a Host header; for an IPv6 address the part inside the brackets. */
const HOST_NAME_PATTERN = /^(?:[a-z0-9._-]{1,253}|[0-9a-f:.]{2,45})$/i;

/** What a port that other machines can reach without TLS or credentials should have. */
export const HTTP_REMEDY = "configure a certificate and credentials, or use a loopback address";

export function loadTls(tls: TlsFiles, report: ReportProblem): TlsConfig | null {
  for (const name of ["cert", "key"] as const) {
    if (typeof tls[name] === "string" && tls[name] !== "") continue;
    report("tls", `${name === "cert" ? "the certificate" : "the key of the certificate"} is missing: both are needed`);
    return null;
  }
  return tryOption("tls", report, () => loadTlsConfig(tls), true);
}

export function loadAccess(
  access: AccessControl | { readonly file: string } | undefined,
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

export function isHttpReachable(hostPort: HostPort): boolean {
  return isReachableRemotely({ ...hostPort, tls: false });
}

/** Host names that HTTP clients may use. */
export function checkHostNames(names: readonly string[], report: ReportProblem): void {
  for (const name of names) {
    if (!HOST_NAME_PATTERN.test(name))
      report("httpNames", `${describeValue(name)} is not a host name or address: leave out the scheme, the port and *`);
  }
}

/** An address that other machines can reach. */
interface ReachableAddress {
  readonly option: string;
  readonly text: string;
  readonly hasTls: boolean;
  readonly remedy: string;
}

/** It needs TLS and credentials, or the explicit option `insecure`: then a warning is returned. */
export function checkReachable(
  { option, text, hasTls, remedy }: ReachableAddress,
  hasCredentials: boolean,
  isInsecureAllowed: boolean,
  report: ReportProblem,
): string | null {
  const missing = [...(hasTls ? [] : ["does not use TLS"]), ...(hasCredentials ? [] : ["requires no credentials"])];
  if (missing.length === 0) return null;
  const finding = `${text} is reachable from other machines and ${missing.join(" and ")}`;
  if (isInsecureAllowed)
    return `INSECURE: ${finding}: any client that can reach it can read, acquire and remove every lock`;
  report(option, `${finding}: ${remedy}, or set insecure`);
  return null;
}

/** Null if it fails; the problem is then reported. */
export function tryOption<T>(
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
