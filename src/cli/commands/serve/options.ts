/** Converts the settings of `holdfast serve` to the options of serve(). Each error names the flag, variable or file of its setting. */

import { createDriver } from "../../../client/driver-url.ts";
import type { ConfigProblem, ServeOptions, TlsFiles } from "../../../server/server.ts";
import { parseDurationFlag } from "../../duration-flag.ts";
import type { LogFormat, LogThreshold } from "./log.ts";
import { LOG_FORMATS, LOG_THRESHOLDS } from "./log.ts";
import type { SettingError, SettingValue } from "./settings.ts";
import { toStrings } from "./settings.ts";

/** Everything that `holdfast serve` needs. */
export interface ServeSettings {
  readonly serve: Omit<ServeOptions, "log" | "state"> & { readonly state?: string };
  /** Which of the user's own defaults apply: the socket without --listen, the state directory without --state and --store. */
  readonly defaults: { readonly socket: boolean; readonly state: boolean };
  readonly idleMs: number | undefined;
  readonly logFormat: LogFormat;
  readonly logLevel: LogThreshold;
}

type SettingValues = ReadonlyMap<string, SettingValue>;
type ReportError = (name: string, message: string) => void;

/** Checks what serve() itself cannot. Opens nothing. */
export async function toServeSettings(values: SettingValues, errors: SettingError[]): Promise<ServeSettings> {
  const reportError: ReportError = (name, message) => errors.push(toSettingError(values, name, message));
  const text = (name: string): string | undefined => {
    const settingValue = values.get(name);
    return settingValue === undefined ? undefined : String(settingValue.value);
  };
  const listen = values.get("listen");
  const state = text("state");
  const store = text("store");
  const driver = await createStoreDriver(store, reportError);
  const credentials = text("credentials");
  const http = text("http");
  const httpName = values.get("http-name");
  const limit = values.get("limit");
  const tls = toTlsFiles(text);
  return {
    serve: {
      listen: listen === undefined ? [] : toStrings(listen),
      ...(state !== undefined && { state }),
      ...(values.has("first-start") && { firstStart: true }),
      ...(driver !== undefined && { driver }),
      // the invalid store is reported already: without this, serve() would also report that the state is missing
      ...(store !== undefined && driver === undefined && { state: "none" }),
      ...(credentials !== undefined && { access: { file: credentials } }),
      ...(tls !== undefined && { tls }),
      ...(http !== undefined && { http }),
      ...(httpName !== undefined && { httpNames: toStrings(httpName) }),
      ...(limit !== undefined && { limits: parseLimits(toStrings(limit), reportError) }),
      insecure: values.has("insecure"),
    },
    defaults: { socket: listen === undefined, state: state === undefined && store === undefined },
    idleMs: parseIdle(text("idle"), reportError),
    logFormat: parseChoice("log-format", text("log-format") ?? "human", LOG_FORMATS, reportError),
    logLevel: values.has("quiet")
      ? "none"
      : parseChoice("log-level", text("log-level") ?? "info", LOG_THRESHOLDS, reportError),
  };
}

/** Converts the problems that serve() reports, with the origin of each setting. */
export function toSettingErrors(values: SettingValues, problems: readonly ConfigProblem[]): SettingError[] {
  return problems.map(({ option, message, isEnvironmental }) => {
    const names = OPTION_SETTINGS[option] ?? [option];
    const name = names.find((candidate) => values.has(candidate)) ?? (names[0] as string);
    const settingError = toSettingError(values, name, message);
    // the setting itself is valid, but what it names is not available: not wrong usage
    return isEnvironmental ? { ...settingError, isUsage: false } : settingError;
  });
}

/** The settings of an option of serve(), where their names differ. */
const OPTION_SETTINGS: Readonly<Record<string, readonly string[]>> = {
  access: ["credentials"],
  firstStart: ["first-start"],
  httpNames: ["http-name"],
  limits: ["limit"],
  tls: ["tls-cert", "tls-key", "tls-client-ca"],
  "tls.cert": ["tls-cert", "tls-key", "tls-client-ca"],
  "tls.key": ["tls-key", "tls-cert", "tls-client-ca"],
  "tls.clientCa": ["tls-client-ca"],
};

function toSettingError(values: SettingValues, name: string, message: string): SettingError {
  const origin = values.get(name)?.origin ?? `--${name}`;
  return { origin, message, isUsage: origin.startsWith("--") };
}

function toTlsFiles(text: (name: string) => string | undefined): TlsFiles | undefined {
  const [cert, key, clientCa] = [text("tls-cert"), text("tls-key"), text("tls-client-ca")];
  if (cert === undefined && key === undefined && clientCa === undefined) return undefined;
  // serve() reports which one is missing
  return { cert: cert ?? "", key: key ?? "", ...(clientCa !== undefined && { clientCa }) };
}

/** Parses "name=value". The last value of a name counts. serve() itself refuses unknown names and values out of range. */
function parseLimits(limitTexts: readonly string[], reportError: ReportError): NonNullable<ServeOptions["limits"]> {
  const limits: Record<string, number> = {};
  for (const limitText of limitTexts) {
    const [, name, digits] = /^([A-Za-z]+)=(\d{1,15})$/.exec(limitText) ?? [];
    if (name === undefined)
      reportError("limit", `${JSON.stringify(limitText.slice(0, 60))} is not of the form NAME=INTEGER`);
    else limits[name] = Number(digits);
  }
  return limits;
}

async function createStoreDriver(url: string | undefined, reportError: ReportError): Promise<ServeOptions["driver"]> {
  if (url === undefined) return undefined;
  try {
    if (url.startsWith("memory:")) {
      throw new Error(
        "memory: would be empty after a restart while clients still hold locks: omit --store to use the server's own table",
      );
    }
    return await createDriver(url);
  } catch (error) {
    reportError("store", (error as Error).message);
    return undefined;
  }
}

function parseIdle(text: string | undefined, reportError: ReportError): number | undefined {
  if (text === undefined) return undefined;
  try {
    return parseDurationFlag(text, "the value");
  } catch (error) {
    reportError("idle", (error as Error).message);
    return undefined;
  }
}

function parseChoice<T extends string>(name: string, text: string, choices: readonly T[], reportError: ReportError): T {
  const match = choices.find((choice) => choice === text);
  if (match === undefined)
    reportError(name, `must be one of ${choices.join(", ")}, not ${JSON.stringify(text.slice(0, 40))}`);
  return match ?? (choices[0] as T);
}
