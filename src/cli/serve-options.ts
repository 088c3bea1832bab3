/** From what was said to `holdfast serve` to what serve() is asked for; each fault with the place where it was said. */

import { driverFor } from "../client/drivers.ts";
import type { Fault, ServeOptions, TlsFiles } from "../server/serve.ts";
import { durationOf } from "./run-options.ts";
import type { LogFormat, LogLevel } from "./serve-log.ts";
import { FORMATS, LEVELS } from "./serve-log.ts";
import type { Complaint, Given } from "./serve-settings.ts";
import { texts } from "./serve-settings.ts";

/** All that `holdfast serve` does is decided here. */
export interface Wanted {
  readonly serve: Omit<ServeOptions, "log" | "state"> & { readonly state?: string };
  /** Neither addresses nor a store's own state were given: the user's own place is meant. */
  readonly own: { readonly socket: boolean; readonly state: boolean };
  readonly idleMs: number | undefined;
  readonly logFormat: LogFormat;
  readonly logLevel: LogLevel;
}

type Said = ReadonlyMap<string, Given>;
type Complain = (name: string, message: string) => void;

/** Checks what serve() itself cannot. Opens nothing. */
export async function wantedOf(said: Said, complaints: Complaint[]): Promise<Wanted> {
  const complain: Complain = (name, message) => complaints.push(complaintOf(said, name, message));
  const text = (name: string): string | undefined => {
    const given = said.get(name);
    return given === undefined ? undefined : String(given.value);
  };
  const listen = said.get("listen");
  const state = text("state");
  const store = text("store");
  const driver = await driverOf(store, complain);
  const credentials = text("credentials");
  const http = text("http");
  const httpName = said.get("http-name");
  const limit = said.get("limit");
  const tls = tlsOf(text);
  return {
    serve: {
      listen: listen === undefined ? [] : texts(listen),
      ...(state !== undefined && { state }),
      ...(said.has("first-start") && { firstStart: true }),
      ...(driver !== undefined && { driver }),
      // a store that means nothing was complained of: the state is not missing as well
      ...(store !== undefined && driver === undefined && { state: "none" }),
      ...(credentials !== undefined && { access: { file: credentials } }),
      ...(tls !== undefined && { tls }),
      ...(http !== undefined && { http }),
      ...(httpName !== undefined && { httpNames: texts(httpName) }),
      ...(limit !== undefined && { limits: limitsOf(texts(limit), complain) }),
      insecure: said.has("insecure"),
    },
    own: { socket: listen === undefined, state: state === undefined && store === undefined },
    idleMs: idleOf(text("idle"), complain),
    logFormat: oneOf("log-format", text("log-format") ?? "human", FORMATS, complain),
    logLevel: said.has("quiet") ? "none" : oneOf("log-level", text("log-level") ?? "info", LEVELS, complain),
  };
}

/** What serve() found, at the place where it was said. */
export function complaintsOf(said: Said, faults: readonly Fault[]): Complaint[] {
  return faults.map(({ option, message, named }) => {
    const names = PLACES[option] ?? [option];
    const name = names.find((it) => said.has(it)) ?? (names[0] as string);
    const complaint = complaintOf(said, name, message);
    // the words are right: what they name is not
    return named ? { ...complaint, usage: false } : complaint;
  });
}

/** Where an option of serve() comes from, if it has another name. */
const PLACES: Readonly<Record<string, readonly string[]>> = {
  access: ["credentials"],
  firstStart: ["first-start"],
  httpNames: ["http-name"],
  limits: ["limit"],
  tls: ["tls-cert", "tls-key", "tls-client-ca"],
  "tls.cert": ["tls-cert", "tls-key", "tls-client-ca"],
  "tls.key": ["tls-key", "tls-cert", "tls-client-ca"],
  "tls.clientCa": ["tls-client-ca"],
};

function complaintOf(said: Said, name: string, message: string): Complaint {
  const where = said.get(name)?.where ?? `--${name}`;
  return { where, message, usage: where.startsWith("--") };
}

function tlsOf(text: (name: string) => string | undefined): TlsFiles | undefined {
  const [cert, key, clientCa] = [text("tls-cert"), text("tls-key"), text("tls-client-ca")];
  if (cert === undefined && key === undefined && clientCa === undefined) return undefined;
  // serve() says which one is missing
  return { cert: cert ?? "", key: key ?? "", ...(clientCa !== undefined && { clientCa }) };
}

/** "name=value", the last one of each name counts. What is no number is refused by serve(), by name. */
function limitsOf(all: readonly string[], complain: Complain): NonNullable<ServeOptions["limits"]> {
  const limits: Record<string, number> = {};
  for (const one of all) {
    const [, name, digits] = /^([A-Za-z]+)=(\d{1,15})$/.exec(one) ?? [];
    if (name === undefined)
      complain("limit", `${JSON.stringify(one.slice(0, 60))} is not a name, "=" and a whole number`);
    else limits[name] = Number(digits);
  }
  return limits;
}

async function driverOf(url: string | undefined, complain: Complain): Promise<ServeOptions["driver"]> {
  if (url === undefined) return undefined;
  try {
    if (url.startsWith("memory:")) {
      throw new Error("memory: would be empty after a restart while clients still hold locks: leave --store out");
    }
    return await driverFor(url);
  } catch (error) {
    complain("store", (error as Error).message);
    return undefined;
  }
}

function idleOf(text: string | undefined, complain: Complain): number | undefined {
  if (text === undefined) return undefined;
  try {
    return durationOf(text, "it");
  } catch (error) {
    complain("idle", (error as Error).message);
    return undefined;
  }
}

function oneOf<T extends string>(name: string, text: string, all: readonly T[], complain: Complain): T {
  const found = all.find((one) => one === text);
  if (found === undefined) complain(name, `${all.join(", ")} are possible, not ${JSON.stringify(text.slice(0, 40))}`);
  return found ?? (all[0] as T);
}
