/**
 * The settings of `holdfast serve`. Each can be set as a flag, in the environment or in a JSON file, under the same
 * name. commander keeps the values with their sources: a flag overrides the environment, and the environment overrides
 * the file.
 */

import { readFileSync } from "node:fs";
import type { Command } from "commander";
import { Option } from "commander";
import type { ConfigProblem, ServeOptions, TlsFiles } from "../../../server/server.ts";
import type { JsonError } from "../../../util/strict-json.ts";
import { parseStrictJson } from "../../../util/strict-json.ts";
import { parseDurationFlag } from "../../duration-flag.ts";
import type { LogFormat, LogThreshold } from "./log.ts";
import { LOG_FORMATS, LOG_THRESHOLDS } from "./log.ts";

/**
 * The flags of `holdfast serve`. One with a variable can also be set in the environment and, except for --config, as a
 * member of the file. The table in docs/guide/server.md lists the same.
 */
export function createServeOptions(): Option[] {
  return [
    setting(
      "--listen <address>",
      "holdfast+unix:/path, holdfast://host:port or holdfasts://host:port; repeatable (default: your own socket)",
    ).argParser(collect),
    setting(
      "--state <path>",
      "directory for the state that survives a restart (default: below your own directory), or none: the server then grants no locks for 60 s after each start",
    ),
    new Option("--first-start", "no lock of an earlier run can still be held: skip the 60 s of --state none, once"),
    setting("--credentials <path>", "file of the accounts that have access (see holdfast credential)"),
    setting("--tls-cert <path>", "certificate of the server with its chain, PEM"),
    setting("--tls-key <path>", "private key of the certificate, PEM"),
    setting("--tls-client-ca <path>", "require client certificates signed by these issuers, PEM"),
    setting("--http <host:port>", "also serve HTTP on this address (default: no HTTP)"),
    setting("--http-name <name>", "additional name by which HTTP clients call this server; repeatable").argParser(
      collect,
    ),
    setting("--limit <name=value>", "change a limit, such as connections=50000; repeatable").argParser(collect),
    setting("--insecure", "accept other machines without TLS or credentials"),
    setting("--idle <duration>", "stop after this time without claims and clients (default: never)"),
    setting("--log-format <format>", "human or json (default: human)"),
    setting("--log-level <level>", "debug, info, warn, error or none (default: info)"),
    setting("--config <path>", "JSON file with these settings"),
    new Option("--check", "check the configuration without starting the server"),
    new Option("--json", "print the addresses as JSON"),
    new Option("-q, --quiet", "print nothing on stderr, like --log-level none"),
  ];
}

/** A setting that has a variable: HOLDFAST_TLS_CERT for --tls-cert. */
export function setting(flags: string, help: string): Option {
  const option = new Option(flags, help);
  return option.env(`HOLDFAST_${option.name().toUpperCase().replaceAll("-", "_")}`);
}

/** The parser of a flag that can be given several times. */
function collect(value: string, values: readonly string[] = []): readonly string[] {
  return [...values, value];
}

/** An error in a setting, with the origin of the setting. */
export interface SettingError {
  /** "--listen", "HOLDFAST_LISTEN" or `"listen" in /etc/holdfast.json`. */
  readonly origin: string;
  readonly message: string;
  /** True for an invalid flag: wrong usage rather than a wrong configuration. */
  readonly isUsage: boolean;
}

type Value = string | readonly string[] | true;

/** The values that apply, each with its origin. */
export class Settings {
  readonly errors: SettingError[] = [];
  readonly #command: Command;
  #limitOrigin = "--limit";

  /** Completes the flags, which commander has parsed, with the environment and the file of --config. */
  constructor(command: Command) {
    this.#command = command;
    const limits: { readonly origin: string; readonly values: readonly string[] }[] = [];
    const isLimitFlag = command.getOptionValueSource("limit") === "cli";
    if (isLimitFlag) limits.push({ origin: "--limit", values: this.list("limit") ?? [] });
    for (const option of command.options) this.#interpretVariable(option);
    const variable = process.env.HOLDFAST_LIMIT ?? "";
    if (variable !== "") limits.push({ origin: "HOLDFAST_LIMIT", values: splitList(variable) });
    for (const [option, value] of this.#readConfigFile()) {
      if (option.name() === "limit") limits.push({ origin: this.#memberOrigin("limit"), values: value as string[] });
      const key = option.attributeName();
      if (command.getOptionValueSource(key) === undefined) command.setOptionValueWithSource(key, value, "config");
    }
    // limits are merged: a flag for one limit does not hide another limit of the file; the last value of a limit counts
    if (limits.length > 0) {
      this.#limitOrigin = limits.map(({ origin }) => origin).join(" or ");
      command.setOptionValue(
        "limit",
        limits.reverse().flatMap(({ values }) => values),
      );
    }
  }

  has(name: string): boolean {
    return this.#value(name) !== undefined;
  }

  /** Which source the value has: that of a higher rank overrides. */
  rank(name: string): number {
    const option = this.#option(name);
    const source = option && this.#command.getOptionValueSource(option.attributeName());
    return ["config", "env", "cli"].indexOf(source ?? "");
  }

  text(name: string): string | undefined {
    const value = this.#value(name);
    return value === undefined ? undefined : String(value);
  }

  list(name: string): readonly string[] | undefined {
    return this.#value(name) as readonly string[] | undefined;
  }

  /** Adds an error in a setting. */
  reportError(name: string, message: string): void {
    this.errors.push(this.toError(name, message));
  }

  toError(name: string, message: string): SettingError {
    const origin = this.#origin(name);
    return { origin, message, isUsage: origin.startsWith("--") };
  }

  #value(name: string): Value | undefined {
    const option = this.#option(name);
    return option && this.#command.getOptionValue(option.attributeName());
  }

  #option(name: string): Option | undefined {
    return this.#command.options.find((option) => option.name() === name);
  }

  #origin(name: string): string {
    if (name === "limit") return this.#limitOrigin;
    const option = this.#option(name);
    const source = option && this.#command.getOptionValueSource(option.attributeName());
    if (source === "env") return option?.envVar as string;
    return source === "config" ? this.#memberOrigin(name) : `--${name}`;
  }

  #memberOrigin(name: string): string {
    return `"${name.slice(0, 40)}" in ${this.text("config")}`;
  }

  /** commander takes a variable as one string, and any value of a switch as on. An empty variable counts as unset. */
  #interpretVariable(option: Option): void {
    const key = option.attributeName();
    if (this.#command.getOptionValueSource(key) !== "env") return;
    const text = process.env[option.envVar as string] as string;
    if (option.isBoolean() && text !== "" && parseSwitch(text) === null)
      this.reportError(option.name(), `must be true or false, not ${JSON.stringify(text)}`);
    const isSet = text !== "" && (!option.isBoolean() || parseSwitch(text) === true);
    if (!isSet) this.#command.setOptionValueWithSource(key, undefined, undefined);
    else if (option.parseArg !== undefined) this.#command.setOptionValueWithSource(key, splitList(text), "env");
  }

  #readConfigFile(): readonly (readonly [Option, Value])[] {
    const path = this.text("config");
    if (path === undefined) return [];
    let parsed: unknown;
    try {
      parsed = parseStrictJson(readFileSync(path, "utf8"));
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      const { field } = error as Partial<JsonError>;
      if (typeof field === "string") return this.#reportMember(field, message);
      this.reportError("config", `${path} ${code === undefined ? message : `cannot be read (${code})`}`);
      return [];
    }
    if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
      this.reportError("config", `${path} must contain one JSON object`);
      return [];
    }
    return Object.entries(parsed).flatMap(([name, rawValue]) => {
      const option = this.#option(name);
      if (option === undefined || !isMember(option)) return this.#reportMember(name, "unknown setting");
      const value = parseMember(option, rawValue);
      if (value === null) return this.#reportMember(name, `must be ${describeExpected(option)}`);
      return value === false ? [] : [[option, value] as const];
    });
  }

  #reportMember(name: string, message: string): readonly [] {
    this.errors.push({ origin: this.#memberOrigin(name), message, isUsage: false });
    return [];
  }
}

/** Can the setting be a member of the file? */
export function isMember(option: Option): boolean {
  return option.envVar !== undefined && option.name() !== "config";
}

function splitList(text: string): readonly string[] {
  return text.split(",").map((part) => part.trim());
}

function parseSwitch(text: string): boolean | null {
  if (["1", "true", "yes"].includes(text.toLowerCase())) return true;
  return ["0", "false", "no"].includes(text.toLowerCase()) ? false : null;
}

/** Null if the value is invalid for this setting; false for a switch that is off. */
function parseMember(option: Option, rawValue: unknown): Value | false | null {
  if (option.isBoolean()) return typeof rawValue === "boolean" ? rawValue : null;
  if (option.name() === "limit" && typeof rawValue === "object" && rawValue !== null && !Array.isArray(rawValue)) {
    return Object.entries(rawValue).map(([limit, number]) => `${limit}=${String(number)}`);
  }
  const isRepeatable = option.parseArg !== undefined;
  if (typeof rawValue === "string") return isRepeatable ? [rawValue] : rawValue;
  const isList = isRepeatable && Array.isArray(rawValue) && rawValue.every((item) => typeof item === "string");
  return isList ? (rawValue as readonly string[]) : null;
}

function describeExpected(option: Option): string {
  if (option.isBoolean()) return "true or false";
  if (option.name() === "limit") return "an object of limits and numbers";
  return option.parseArg === undefined ? "a string" : "a string or a list of strings";
}

/** Everything that `holdfast serve` needs. */
export interface ServeSettings extends LogSettings {
  readonly serve: Omit<ServeOptions, "log" | "state"> & { readonly state?: string };
  /**
   * Which of the user's own defaults apply: the socket without --listen, the state directory without --state.
   */
  readonly defaults: { readonly socket: boolean; readonly state: boolean };
  readonly idleMs: number | undefined;
}

/** Converts the settings to the options of serve(). Checks what serve() itself cannot. Opens nothing. */
export function toServeSettings(settings: Settings): ServeSettings {
  const listen = settings.list("listen");
  const state = settings.text("state");
  const http = settings.text("http");
  return {
    serve: {
      ...toPortOptions(settings),
      listen: listen ?? [],
      ...(state !== undefined && { state }),
      ...(settings.has("first-start") && { firstStart: true }),
      ...(http !== undefined && { http }),
    },
    defaults: { socket: listen === undefined, state: state === undefined },
    idleMs: parseIdle(settings),
    ...toLogSettings(settings),
  };
}

/** The options that a server and a gateway have in common. */
export function toPortOptions(
  settings: Settings,
): Pick<ServeOptions, "access" | "tls" | "httpNames" | "limits" | "insecure"> {
  const credentials = settings.text("credentials");
  const httpNames = settings.list("http-name");
  const limit = settings.list("limit");
  const tls = toTlsFiles(settings);
  return {
    ...(credentials !== undefined && { access: { file: credentials } }),
    ...(tls !== undefined && { tls }),
    ...(httpNames !== undefined && { httpNames }),
    ...(limit !== undefined && { limits: parseLimits(limit, settings) }),
    insecure: settings.has("insecure"),
  };
}

/** How the program logs. */
export interface LogSettings {
  readonly logFormat: LogFormat;
  readonly logLevel: LogThreshold;
}

export function toLogSettings(settings: Settings): LogSettings {
  return {
    logFormat: parseChoice(settings, "log-format", "human", LOG_FORMATS),
    logLevel: settings.has("quiet") ? "none" : parseChoice(settings, "log-level", "info", LOG_THRESHOLDS),
  };
}

/** Converts the problems that serve() or a gateway reports, with the origin of each setting. */
export function toSettingErrors(settings: Settings, problems: readonly ConfigProblem[]): SettingError[] {
  return problems.map(({ option, message, isEnvironmental }) => {
    const names = OPTION_SETTINGS[option] ?? [option];
    const name = names.find((candidate) => settings.has(candidate)) ?? (names[0] as string);
    const settingError = settings.toError(name, message);
    // the setting itself is valid, but what it names is not available: not wrong usage
    return isEnvironmental ? { ...settingError, isUsage: false } : settingError;
  });
}

/** The settings of an option of serve(), where their names differ. */
const OPTION_SETTINGS: Readonly<Record<string, readonly string[]>> = {
  access: ["credentials"],
  firstStart: ["first-start"],
  httpNames: ["http-name"],
  referenceKey: ["reference-key"],
  limits: ["limit"],
  tls: ["tls-cert", "tls-key", "tls-client-ca"],
  "tls.cert": ["tls-cert", "tls-key", "tls-client-ca"],
  "tls.key": ["tls-key", "tls-cert", "tls-client-ca"],
  "tls.clientCa": ["tls-client-ca"],
};

function toTlsFiles(settings: Settings): TlsFiles | undefined {
  const [cert, key, clientCa] = ["tls-cert", "tls-key", "tls-client-ca"].map((name) => settings.text(name));
  if (cert === undefined && key === undefined && clientCa === undefined) return undefined;
  // serve() reports which one is missing
  return { cert: cert ?? "", key: key ?? "", ...(clientCa !== undefined && { clientCa }) };
}

/**
 * Parses "name=value". The last value of a name counts. serve() itself refuses unknown names and values out of range.
 */
function parseLimits(limitTexts: readonly string[], settings: Settings): NonNullable<ServeOptions["limits"]> {
  const limits: Record<string, number> = {};
  for (const limitText of limitTexts) {
    const [, name, digits] = /^([A-Za-z]+)=(\d{1,15})$/.exec(limitText) ?? [];
    if (name === undefined)
      settings.reportError("limit", `${JSON.stringify(limitText.slice(0, 60))} is not of the form NAME=INTEGER`);
    else limits[name] = Number(digits);
  }
  return limits;
}

function parseIdle(settings: Settings): number | undefined {
  const text = settings.text("idle");
  if (text === undefined) return undefined;
  try {
    return parseDurationFlag(text, "the value");
  } catch (error) {
    settings.reportError("idle", (error as Error).message);
    return undefined;
  }
}

function parseChoice<T extends string>(settings: Settings, name: string, preset: T, choices: readonly T[]): T {
  const text = settings.text(name) ?? preset;
  const match = choices.find((choice) => choice === text);
  if (match === undefined)
    settings.reportError(name, `must be one of ${choices.join(", ")}, not ${JSON.stringify(text.slice(0, 40))}`);
  return match ?? preset;
}
