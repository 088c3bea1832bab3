/**
 * The settings of `holdfast serve`. Each can be set as a flag, in the environment or in a JSON file, under the same name. A
 * flag overrides the environment, and the environment overrides the file.
 */

import { readFileSync } from "node:fs";
import type { JsonError } from "../../../util/strict-json.ts";
import { parseStrictJson } from "../../../util/strict-json.ts";

/** One setting. */
export interface Setting {
  /** The flag is `--name`, the variable HOLDFAST_NAME, the member of the file "name". */
  readonly name: string;
  /** The placeholder of the value in help; absent: the setting is a switch. */
  readonly value?: string;
  /** Can be given several times; in the environment the values are separated by commas. */
  readonly isRepeatable?: true;
  /** Can be set only as a flag, or as a flag and in the environment; absent: also in the file. */
  readonly scope?: "flag" | "flag and environment";
  readonly short?: string;
  readonly help: string;
}

/** All settings. The table in docs/guide/server.md lists the same. */
export const SETTINGS: readonly Setting[] = [
  {
    name: "listen",
    value: "<address>",
    isRepeatable: true,
    help: "unix:/path, tcp://host:port or tls://host:port; repeatable (default: your own socket)",
  },
  {
    name: "state",
    value: "<path>",
    help: "directory for the state that survives a restart (default: below your own directory), or none: the server then grants no locks for 60 s after each start",
  },
  {
    name: "first-start",
    scope: "flag",
    help: "no lock of an earlier run can still be held: skip the 60 s of --state none, once",
  },
  { name: "store", value: "<url>", help: "serve this store instead of the server's own lock table" },
  { name: "credentials", value: "<path>", help: "file of the accounts that have access (see holdfast credential)" },
  { name: "tls-cert", value: "<path>", help: "certificate of the server with its chain, PEM" },
  { name: "tls-key", value: "<path>", help: "private key of the certificate, PEM" },
  { name: "tls-client-ca", value: "<path>", help: "require client certificates signed by these issuers, PEM" },
  { name: "http", value: "<host:port>", help: "also serve HTTP on this address (default: no HTTP)" },
  {
    name: "http-name",
    value: "<name>",
    isRepeatable: true,
    help: "additional name by which HTTP clients call this server; repeatable",
  },
  {
    name: "limit",
    value: "<name=value>",
    isRepeatable: true,
    help: "change a limit, such as connections=50000; repeatable",
  },
  { name: "insecure", help: "accept other machines without TLS or credentials" },
  { name: "idle", value: "<duration>", help: "stop after this time without claims and clients (default: never)" },
  { name: "log-format", value: "<format>", help: "human or json (default: human)" },
  { name: "log-level", value: "<level>", help: "debug, info, warn, error or none (default: info)" },
  { name: "config", value: "<path>", scope: "flag and environment", help: "JSON file with these settings" },
  { name: "check", scope: "flag", help: "check the configuration without starting the server" },
  { name: "json", scope: "flag", help: "print the addresses as JSON" },
  { name: "quiet", short: "q", scope: "flag", help: "print nothing on stderr, like --log-level none" },
];

/** An error in a setting, with the origin of the setting. */
export interface SettingError {
  /** "--listen", "HOLDFAST_LISTEN" or `"listen" in /etc/holdfast.json`. */
  readonly origin: string;
  readonly message: string;
  /** True for an invalid flag: wrong usage rather than a wrong configuration. */
  readonly isUsage: boolean;
}

/** A value and its origin. */
export interface SettingValue {
  readonly value: string | readonly string[] | true;
  readonly origin: string;
}

/** The values that apply. Limits are merged from all sources, each limit with its own overriding. */
export interface ResolvedSettings {
  readonly values: ReadonlyMap<string, SettingValue>;
  readonly errors: SettingError[];
}

/** The parsed flags: a text, several texts, or true for a switch. */
export type FlagValues = Readonly<Record<string, unknown>>;

/** Merges flags, environment and the file of --config. */
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

type ReportError = (origin: string, message: string) => void;
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
      if (isOn === null) reportError(origin, `must be true or false, not ${JSON.stringify(text)}`);
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
    reportError(config.origin, `${path} must contain one JSON object`);
    return source;
  }
  for (const [name, rawValue] of Object.entries(parsed)) {
    const origin = `"${name.slice(0, 40)}" in ${path}`;
    const setting = SETTINGS.find((candidate) => candidate.name === name && candidate.scope === undefined);
    const value = setting === undefined ? null : parseFileValue(setting, rawValue);
    if (setting === undefined) reportError(origin, "unknown setting");
    else if (value === null) reportError(origin, `must be ${describeExpected(setting)}`);
    else if (value !== false) source.set(name, { value, origin });
  }
  return source;
}

/** Null if the value is invalid for this setting; false for a switch that is off. */
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
  return isRepeatable === undefined ? "a string" : "a string or a list of strings";
}

function toCamelCase(name: string): string {
  return name.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
