/** What a server's options mean, checked before anything is opened: every fault at once. */

import type { Checks } from "../checks.ts";
import { isClock, isFlag, isFunction, isObject, right } from "../checks.ts";
import { shown } from "../duration.ts";
import type { Access } from "./access.ts";
import { createAccess, OPEN } from "./access.ts";
import type { Address, HostPort } from "./address.ts";
import { addressOf, addressText, hostPortOf, hostPortText, isOpen } from "./address.ts";
import { readAccounts } from "./credentials.ts";
import type { ServerLimits } from "./limits.ts";
import { DEFAULT_LIMITS, limitsFrom } from "./limits.ts";
import type { ServeOptions } from "./serve.ts";
import type { TlsMaterial } from "./tls.ts";
import { readTls } from "./tls.ts";

/** One thing that is wrong with the options of a server. */
export interface Fault {
  /** The option, as "listen" or "tls". */
  readonly option: string;
  /** A sentence. */
  readonly message: string;
  /** The value means something, but what it names (a file, a folder) cannot be used. */
  readonly named: boolean;
}

/** Options that were found good. */
export interface Plan {
  readonly addresses: readonly Address[];
  readonly http: HostPort | null;
  readonly tls: TlsMaterial | null;
  readonly access: Access;
  readonly limits: ServerLimits;
  /** What an operator should know although the server starts. */
  readonly warnings: readonly string[];
}

/** The plan, which means something only if there are no faults. */
export interface Planned {
  readonly plan: Plan;
  readonly faults: readonly Fault[];
}

type Note = (option: string, message: string, named?: boolean) => void;

/** Nothing is planned where the options themselves are none. */
const NO_PLAN: Plan = { addresses: [], http: null, tls: null, access: OPEN, limits: DEFAULT_LIMITS, warnings: [] };

const isAnObject = (value: unknown): string | null => (isObject(value) ? null : "an object");

/** What may stand in a Host header before the port; of an IPv6 address what stands in the brackets. */
const HOST_NAME = /^(?:[a-z0-9._-]{1,253}|[0-9a-f:.]{2,45})$/i;

/** What each option must be, as far as nothing else says so. */
const KINDS: Checks<ServeOptions> = {
  listen: right,
  state: right,
  firstStart: isFlag,
  driver: (value) => (isObject(value) && typeof value.claim === "function" ? null : "a driver"),
  access: (value) => (isObject(value) && ("attend" in value || typeof value.file === "string") ? null : "{ file }"),
  tls: isAnObject,
  http: right,
  httpNames: (value) =>
    Array.isArray(value) && value.every((name) => typeof name === "string") ? null : "an array of texts",
  limits: isAnObject,
  insecure: isFlag,
  clock: isClock,
  log: isFunction,
};

/** Reads the files that the options name; opens and makes nothing. @throws TypeError for what is no object */
export function planOf(options: ServeOptions): Planned {
  const faults: Fault[] = [];
  const note: Note = (option, message, named = false) => void faults.push({ option, message, named });
  checkKinds(options, note);
  if (faults.length > 0) return { plan: NO_PLAN, faults };
  const addresses = addressesIn(options.listen, note);
  const http = options.http === undefined ? null : attempt("http", note, () => hostPortOf(options.http));
  const tls = options.tls === undefined ? null : tlsIn(options.tls, note);
  const limits = attempt("limits", note, () => limitsFrom(options.limits)) ?? DEFAULT_LIMITS;
  const access = accessIn(options.access, limits, note);
  checkStore(options, note);
  for (const name of options.httpNames ?? []) {
    if (!HOST_NAME.test(name))
      note("httpNames", `${shown(name)} is no host name or address: no scheme, port or * belongs to it`);
  }
  const isSafe = { tls: options.tls !== undefined, credentials: options.access !== undefined };
  const warnings = [...(tls?.warnings ?? []), ...exposure(addresses, http, isSafe, options.insecure === true, note)];
  if (isSafe.tls && !addresses.some((it) => "tls" in it && it.tls) && (http === null || !opened(http))) {
    warnings.push("certificates are given, but no address speaks TLS: tls://host:port does");
  }
  return { plan: { addresses, http, tls, access, limits, warnings }, faults };
}

/** From JavaScript anything may come, and `acess` must not mean a server that asks nobody for a credential. */
function checkKinds(options: ServeOptions, note: Note): void {
  if (!isObject(options)) throw new TypeError(`options must be an object, not ${shown(options)}`);
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(KINDS, name)) note(name, "serve has no such option");
  }
  for (const [name, check] of Object.entries(KINDS)) {
    const value = options[name];
    const must = value === undefined ? null : check(value);
    // instead of a file's name there may be a credential
    if (must !== null) note(name, `it must be ${must}${name === "access" ? "" : `, not ${shown(value)}`}`);
  }
}

function addressesIn(listen: unknown, note: Note): Address[] {
  const texts: readonly unknown[] = Array.isArray(listen) ? listen : [listen];
  if (texts.length === 0) note("listen", "no address is given: unix:/path, tcp://host:port or tls://host:port");
  const found = texts.flatMap((text) => attempt("listen", note, () => addressOf(text)) ?? []);
  const seen = new Set<string>();
  for (const address of found) {
    const text = addressText(address);
    if (seen.has(text) && ("path" in address || address.port !== 0)) note("listen", `${text} is given twice`);
    seen.add(text);
  }
  return found;
}

function tlsIn(tls: NonNullable<ServeOptions["tls"]>, note: Note): TlsMaterial | null {
  for (const name of ["cert", "key"] as const) {
    if (typeof tls[name] === "string" && tls[name] !== "") continue;
    note("tls", `${name === "cert" ? "the certificate" : "the key of the certificate"} is missing: both are needed`);
    return null;
  }
  return attempt("tls", note, () => readTls(tls), true);
}

function accessIn(access: ServeOptions["access"], { failuresPerMinute }: ServerLimits, note: Note): Access {
  if (access === undefined) return OPEN;
  if (!("file" in access)) return access;
  return attempt("access", note, () => createAccess(readAccounts(access.file), { failuresPerMinute }), true) ?? OPEN;
}

function checkStore({ driver, state, firstStart }: ServeOptions, note: Note): void {
  if (driver !== undefined) {
    if (firstStart === true) note("firstStart", "it belongs to the server's own table: another store keeps its own");
    if (state !== undefined) note("state", "it belongs to the server's own table: another store keeps its own");
  } else if (typeof state !== "string" || state === "") {
    note("state", `a folder or "none" is needed, not ${shown(state)}`);
  }
}

/** What other machines could reach must be guarded, or opened by a word of its own. */
function exposure(
  addresses: readonly Address[],
  http: HostPort | null,
  has: { readonly tls: boolean; readonly credentials: boolean },
  insecure: boolean,
  note: Note,
): string[] {
  const warnings: string[] = [];
  const look = (option: string, text: string, tls: boolean, cure: string): void => {
    const lacks = [...(tls ? [] : ["speaks no TLS"]), ...(has.credentials ? [] : ["asks for no credentials"])];
    if (lacks.length === 0) return;
    const said = `${text} is open to other machines and ${lacks.join(" and ")}`;
    if (insecure) warnings.push(`INSECURE: ${said}: whoever reaches it can read, take and remove every lock`);
    else note(option, `${said}: ${cure}, or say insecure`);
  };
  for (const address of addresses) {
    if (!isOpen(address) || "path" in address) continue;
    const there = hostPortText(address);
    const cure = address.tls ? "give credentials" : `listen on tls://${there}, with a certificate and credentials`;
    look("listen", addressText(address), address.tls, cure);
  }
  for (const address of addresses) {
    if ("path" in address || !address.tls || has.tls) continue;
    note("listen", `${addressText(address)} needs a certificate and its key`);
  }
  if (http !== null && opened(http)) {
    look("http", hostPortText(http), has.tls, "give a certificate and credentials, or a loopback address");
  }
  return warnings;
}

function opened(place: HostPort): boolean {
  return isOpen({ ...place, tls: false });
}

/** Null if it fails, and a fault is noted. */
function attempt<T>(option: string, note: Note, work: () => T, named: boolean = false): T | null {
  try {
    return work();
  } catch (error) {
    for (const line of (error as Error).message.split("\n")) note(option, line, named);
    return null;
  }
}
