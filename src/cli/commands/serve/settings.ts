/**
 * What may be said to `holdfast serve`, under one name each: as a flag, in the environment, or in a JSON file. A flag
 * wins over the environment, the environment over the file.
 */

import { readFileSync } from "node:fs";
import type { JsonError } from "../../../util/strict-json.ts";
import { parseStrictJson } from "../../../util/strict-json.ts";

/** One thing that may be said. */
export interface Setting {
  /** As a flag it is `--name`, in the environment HOLDFAST_NAME, in the file "name". */
  readonly name: string;
  /** How its value is shown; without one it is a switch. */
  readonly value?: string;
  /** It may be said more than once; in the environment separated by commas. */
  readonly isRepeatable?: true;
  /** It stands on the command line alone, or there and in the environment. */
  readonly scope?: "flag" | "flag and environment";
  readonly short?: string;
  readonly help: string;
}

/** All of them; docs/guide/server.md has a table of them. */
export const SETTINGS: readonly Setting[] = [
  {
    name: "listen",
    value: "<address>",
    isRepeatable: true,
    help: "unix:/path, tcp://host:port or tls://host:port; may be repeated (default: your own socket)",
  },
  {
    name: "state",
    value: "<path>",
    help: "folder for what survives a restart (default: below your own directory), or none: then each start grants nothing for 60 s",
  },
  {
    name: "first-start",
    scope: "flag",
    help: "nothing of an earlier run can be held: skip the 60 s of --state none, once",
  },
  { name: "store", value: "<url>", help: "serve this store instead of a table of its own" },
  { name: "credentials", value: "<path>", help: "file with the accounts that are let in (see holdfast credential)" },
  { name: "tls-cert", value: "<path>", help: "certificate of the server, PEM, with its chain" },
  { name: "tls-key", value: "<path>", help: "private key of the certificate, PEM" },
  { name: "tls-client-ca", value: "<path>", help: "demand client certificates signed by these issuers, PEM" },
  { name: "http", value: "<host:port>", help: "serve HTTP, too (default: no)" },
  {
    name: "http-name",
    value: "<name>",
    isRepeatable: true,
    help: "a name by which HTTP clients call this server; repeatable",
  },
  {
    name: "limit",
    value: "<name=value>",
    isRepeatable: true,
    help: "change a limit, as connections=50000; may be repeated",
  },
  { name: "insecure", help: "let other machines in without TLS or credentials" },
  { name: "idle", value: "<duration>", help: "leave after so long without claims and clients (default: never)" },
  { name: "log-format", value: "<format>", help: "human or json (default: human)" },
  { name: "log-level", value: "<level>", help: "debug, info, warn, error or none (default: info)" },
  { name: "config", value: "<path>", scope: "flag and environment", help: "JSON file with any of these" },
  { name: "check", scope: "flag", help: "check all of this, start nothing" },
  { name: "json", scope: "flag", help: "say where it listens as JSON" },
  { name: "quiet", short: "q", scope: "flag", help: "say nothing on stderr, like --log-level none" },
];

/** What is wrong, and where it was said. */
export interface SettingError {
  /** As "--listen", "HOLDFAST_LISTEN" or `"listen" in /etc/holdfast.json`. */
  readonly origin: string;
  readonly message: string;
  /** It stands on the command line and means nothing there. */
  readonly isUsage: boolean;
}

/** One value and where it was said. */
export interface SettingValue {
  readonly value: string | readonly string[] | true;
  readonly origin: string;
}

/** All that was said, the strongest of each; limits are joined, each with the strongest of its own. */
export interface ResolvedSettings {
  readonly values: ReadonlyMap<string, SettingValue>;
  readonly errors: SettingError[];
}

/** What a flag gave: a text, several, or that it was there. */
export type FlagValues = Readonly<Record<string, unknown>>;

/** Reads the file that is named, if one is. */
export function resolveSettings(flags: FlagValues, env: NodeJS.ProcessEnv): ResolvedSettings {
  const errors: SettingError[] = [];
  const reportError = (origin: string, message: string): void => {
    errors.push({ origin, message, isUsage: origin.startsWith("--") });
  };
  const values = new Map<string, SettingValue>();
  const sources = [readFlags(flags), readEnvironment(env, reportError)];
  for (const source of sources) addSource(values, source);
  const config = values.get("config");
  if (config !== undefined) addSource(values, readConfigFile(config, reportError));
  return { values, errors };
}

type ReportError = (where: string, message: string) => void;
type SettingSource = ReadonlyMap<string, SettingValue>;

function addSource(values: Map<string, SettingValue>, source: SettingSource): void {
  for (const [name, weaker] of source) {
    const stronger = values.get(name);
    if (stronger === undefined) values.set(name, weaker);
    else if (name === "limit") {
      const origin = `${stronger.origin} or ${weaker.origin}`;
      values.set(name, { origin, value: [...toStrings(weaker), ...toStrings(stronger)] });
    }
  }
}

/** A value as a list of texts. */
export function toStrings({ value }: SettingValue): readonly string[] {
  if (value === true) return [];
  return typeof value === "string" ? [value] : value;
}

function readFlags(flags: FlagValues): SettingSource {
  const source = new Map<string, SettingValue>();
  for (const { name } of SETTINGS) {
    const value = flags[toCamelCase(name)] as SettingValue["value"] | undefined;
    if (value !== undefined) source.set(name, { value, origin: `--${name}` });
  }
  return source;
}

function readEnvironment(env: NodeJS.ProcessEnv, reportError: ReportError): SettingSource {
  const source = new Map<string, SettingValue>();
  for (const { name, value: valueName, isRepeatable, scope } of SETTINGS) {
    const origin = toVariableName(name);
    const text = env[origin];
    if (scope === "flag" || text === undefined || text === "") continue;
    if (valueName === undefined) {
      const isOn = parseSwitch(text);
      if (isOn === null) reportError(origin, `true or false is needed, not ${JSON.stringify(text)}`);
      if (isOn === true) source.set(name, { value: true, origin });
      continue;
    }
    const value = isRepeatable === undefined ? text : text.split(",").map((part) => part.trim());
    source.set(name, { value, origin });
  }
  return source;
}

/** HOLDFAST_TLS_CERT for "tls-cert". */
export function toVariableName(name: string): string {
  return `HOLDFAST_${name.toUpperCase().replaceAll("-", "_")}`;
}

function parseSwitch(text: string): boolean | null {
  if (["1", "true", "yes"].includes(text.toLowerCase())) return true;
  return ["0", "false", "no"].includes(text.toLowerCase()) ? false : null;
}

function readConfigFile(config: SettingValue, reportError: ReportError): SettingSource {
  const source = new Map<string, SettingValue>();
  const path = String(config.value);
  let parsed: unknown;
  try {
    const text = readFileSync(path, "utf8");
    parsed = parseStrictJson(text);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const { field } = error as Partial<JsonError>;
    if (typeof field === "string") reportError(`"${field.slice(0, 40)}" in ${path}`, message);
    else reportError(config.origin, `${path} ${code === undefined ? message : `cannot be read (${code})`}`);
    return source;
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
    reportError(config.origin, `${path} must hold one JSON object`);
    return source;
  }
  for (const [name, rawValue] of Object.entries(parsed)) {
    const origin = `"${name.slice(0, 40)}" in ${path}`;
    const setting = SETTINGS.find((candidate) => candidate.name === name && candidate.scope === undefined);
    const value = setting === undefined ? null : parseFileValue(setting, rawValue);
    if (setting === undefined) reportError(origin, "there is no such setting");
    else if (value === null) reportError(origin, `${describeExpected(setting)} is needed`);
    else if (value !== false) source.set(name, { value, origin });
  }
  return source;
}

/** null: it is nothing for this setting. */
function parseFileValue(
  { name, value: valueName, isRepeatable }: Setting,
  rawValue: unknown,
): SettingValue["value"] | false | null {
  if (valueName === undefined) return typeof rawValue === "boolean" ? rawValue : null;
  if (name === "limit" && typeof rawValue === "object" && rawValue !== null && !Array.isArray(rawValue)) {
    return Object.entries(rawValue).map(([limit, number]) => `${limit}=${String(number)}`);
  }
  if (typeof rawValue === "string") return isRepeatable === undefined ? rawValue : [rawValue];
  const isList =
    isRepeatable !== undefined && Array.isArray(rawValue) && rawValue.every((item) => typeof item === "string");
  return isList ? (rawValue as readonly string[]) : null;
}

function describeExpected({ name, value, isRepeatable }: Setting): string {
  if (value === undefined) return "true or false";
  if (name === "limit") return "an object of limits and numbers";
  return isRepeatable === undefined ? "a text" : "a text or a list of texts";
}

function toCamelCase(name: string): string {
  return name.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
