/**
 * What may be said to `holdfast serve`, under one name each: as a flag, in the environment, or in a JSON file. A flag
 * wins over the environment, the environment over the file.
 */

import { readFileSync } from "node:fs";
import type { JsonError } from "../server/http/json.ts";
import { parseStrictly } from "../server/http/json.ts";

/** One thing that may be said. */
export interface Setting {
  /** As a flag it is `--name`, in the environment HOLDFAST_NAME, in the file "name". */
  readonly name: string;
  /** How its value is shown; without one it is a switch. */
  readonly value?: string;
  /** It may be said more than once; in the environment separated by commas. */
  readonly many?: true;
  /** It stands on the command line alone, or there and in the environment. */
  readonly only?: "flag" | "flag and environment";
  readonly short?: string;
  readonly help: string;
}

/** All of them; docs/guide/server.md has a table of them. */
export const SETTINGS: readonly Setting[] = [
  {
    name: "listen",
    value: "<address>",
    many: true,
    help: "unix:/path, tcp://host:port or tls://host:port; may be repeated (default: your own socket)",
  },
  {
    name: "state",
    value: "<path>",
    help: "folder for what survives a restart (default: below your own directory), or none: then each start grants nothing for 60 s",
  },
  {
    name: "first-start",
    only: "flag",
    help: "nothing of an earlier run can be held: skip the 60 s of --state none, once",
  },
  { name: "store", value: "<url>", help: "serve this store instead of a table of its own" },
  { name: "credentials", value: "<path>", help: "file with the accounts that are let in (see holdfast credential)" },
  { name: "tls-cert", value: "<path>", help: "certificate of the server, PEM, with its chain" },
  { name: "tls-key", value: "<path>", help: "private key of the certificate, PEM" },
  { name: "tls-client-ca", value: "<path>", help: "demand client certificates signed by these issuers, PEM" },
  { name: "http", value: "<host:port>", help: "serve HTTP, too (default: no)" },
  { name: "http-name", value: "<name>", many: true, help: "a name by which HTTP clients call this server; repeatable" },
  { name: "limit", value: "<name=value>", many: true, help: "change a limit, as connections=50000; may be repeated" },
  { name: "insecure", help: "let other machines in without TLS or credentials" },
  { name: "idle", value: "<duration>", help: "leave after so long without claims and clients (default: never)" },
  { name: "log-format", value: "<format>", help: "human or json (default: human)" },
  { name: "log-level", value: "<level>", help: "debug, info, warn, error or none (default: info)" },
  { name: "config", value: "<path>", only: "flag and environment", help: "JSON file with any of these" },
  { name: "check", only: "flag", help: "check all of this, start nothing" },
  { name: "json", only: "flag", help: "say where it listens as JSON" },
  { name: "quiet", short: "q", only: "flag", help: "say nothing on stderr, like --log-level none" },
];

/** What is wrong, and where it was said. */
export interface Complaint {
  /** As "--listen", "HOLDFAST_LISTEN" or `"listen" in /etc/holdfast.json`. */
  readonly where: string;
  readonly message: string;
  /** It stands on the command line and means nothing there. */
  readonly usage: boolean;
}

/** One value and where it was said. */
export interface Given {
  readonly value: string | readonly string[] | true;
  readonly where: string;
}

/** All that was said, the strongest of each; limits are joined, each with the strongest of its own. */
export interface Gathered {
  readonly given: ReadonlyMap<string, Given>;
  readonly complaints: Complaint[];
}

/** What a flag gave: a text, several, or that it was there. */
export type FlagValues = Readonly<Record<string, unknown>>;

/** Reads the file that is named, if one is. */
export function gather(flags: FlagValues, env: NodeJS.ProcessEnv): Gathered {
  const complaints: Complaint[] = [];
  const complain = (where: string, message: string): void => {
    complaints.push({ where, message, usage: where.startsWith("--") });
  };
  const given = new Map<string, Given>();
  const layers = [flagLayer(flags), environmentLayer(env, complain)];
  for (const layer of layers) addWeaker(given, layer);
  const config = given.get("config");
  if (config !== undefined) addWeaker(given, fileLayer(config, complain));
  return { given, complaints };
}

type Complain = (where: string, message: string) => void;
type Layer = ReadonlyMap<string, Given>;

function addWeaker(given: Map<string, Given>, layer: Layer): void {
  for (const [name, weaker] of layer) {
    const stronger = given.get(name);
    if (stronger === undefined) given.set(name, weaker);
    else if (name === "limit") {
      const where = `${stronger.where} or ${weaker.where}`;
      given.set(name, { where, value: [...texts(weaker), ...texts(stronger)] });
    }
  }
}

/** A value as a list of texts. */
export function texts({ value }: Given): readonly string[] {
  if (value === true) return [];
  return typeof value === "string" ? [value] : value;
}

function flagLayer(flags: FlagValues): Layer {
  const layer = new Map<string, Given>();
  for (const { name } of SETTINGS) {
    const value = flags[camel(name)] as Given["value"] | undefined;
    if (value !== undefined) layer.set(name, { value, where: `--${name}` });
  }
  return layer;
}

function environmentLayer(env: NodeJS.ProcessEnv, complain: Complain): Layer {
  const layer = new Map<string, Given>();
  for (const { name, value: takes, many, only } of SETTINGS) {
    const where = variableOf(name);
    const text = env[where];
    if (only === "flag" || text === undefined || text === "") continue;
    if (takes === undefined) {
      const on = switchOf(text);
      if (on === null) complain(where, `true or false is needed, not ${JSON.stringify(text)}`);
      if (on === true) layer.set(name, { value: true, where });
      continue;
    }
    const value = many === undefined ? text : text.split(",").map((part) => part.trim());
    layer.set(name, { value, where });
  }
  return layer;
}

/** HOLDFAST_TLS_CERT for "tls-cert". */
export function variableOf(name: string): string {
  return `HOLDFAST_${name.toUpperCase().replaceAll("-", "_")}`;
}

function switchOf(text: string): boolean | null {
  if (["1", "true", "yes"].includes(text.toLowerCase())) return true;
  return ["0", "false", "no"].includes(text.toLowerCase()) ? false : null;
}

function fileLayer(config: Given, complain: Complain): Layer {
  const layer = new Map<string, Given>();
  const path = String(config.value);
  let whole: unknown;
  try {
    const text = readFileSync(path, "utf8");
    whole = parseStrictly(text);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const { field } = error as Partial<JsonError>;
    if (typeof field === "string") complain(`"${field.slice(0, 40)}" in ${path}`, message);
    else complain(config.where, `${path} ${code === undefined ? message : `cannot be read (${code})`}`);
    return layer;
  }
  if (typeof whole !== "object" || whole === null || Array.isArray(whole)) {
    complain(config.where, `${path} must hold one JSON object`);
    return layer;
  }
  for (const [name, found] of Object.entries(whole)) {
    const where = `"${name.slice(0, 40)}" in ${path}`;
    const setting = SETTINGS.find((it) => it.name === name && it.only === undefined);
    const value = setting === undefined ? null : fileValue(setting, found);
    if (setting === undefined) complain(where, "there is no such setting");
    else if (value === null) complain(where, `${wantedIn(setting)} is needed`);
    else if (value !== false) layer.set(name, { value, where });
  }
  return layer;
}

/** null: it is nothing for this setting. */
function fileValue({ name, value: takes, many }: Setting, found: unknown): Given["value"] | false | null {
  if (takes === undefined) return typeof found === "boolean" ? found : null;
  if (name === "limit" && typeof found === "object" && found !== null && !Array.isArray(found)) {
    return Object.entries(found).map(([limit, number]) => `${limit}=${String(number)}`);
  }
  if (typeof found === "string") return many === undefined ? found : [found];
  const isList = many !== undefined && Array.isArray(found) && found.every((one) => typeof one === "string");
  return isList ? (found as readonly string[]) : null;
}

function wantedIn({ name, value, many }: Setting): string {
  if (value === undefined) return "true or false";
  if (name === "limit") return "an object of limits and numbers";
  return many === undefined ? "a text" : "a text or a list of texts";
}

function camel(name: string): string {
  return name.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
