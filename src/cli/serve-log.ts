/** The log of `holdfast serve` on stderr: sentences for people, or one JSON object a line. */

import type { Level, Log, LogDetails } from "../server/logging.ts";
import { complain, jsonLine, say, visible } from "./output.ts";

export const FORMATS = ["human", "json"] as const;
export type LogFormat = (typeof FORMATS)[number];

/** From all to nothing. */
export const LEVELS = ["debug", "info", "warn", "error", "none"] as const;
export type LogLevel = (typeof LEVELS)[number];

/** Texts of others are cut to this. */
const MOST_CHARS = 500;
/** Keys are often personal: enough to find one, not to copy it. */
const MOST_KEY_CHARS = 64;
/** Errors have causes, and these again. */
const MOST_CAUSES = 4;

/** Writes what is of this level or above. */
export function logOf(format: LogFormat, least: LogLevel): Log {
  return (message, error, details = {}) => {
    const { level = error === undefined ? "info" : "error", ...more } = details;
    if (LEVELS.indexOf(level) < LEVELS.indexOf(least)) return;
    const fields = fieldsOf(more);
    if (format === "json") return complain(jsonOf(level, message, error, fields));
    const sentence = [redacted(message), ...(error === undefined ? [] : [errorText(error)])].join(": ");
    const beside = Object.entries(fields).flatMap(([name, value]) => (value === "" ? [] : `${name} ${told(value)}`));
    const head = level === "warn" ? "warning: " : level === "error" ? "error: " : "";
    say(visible(`${head}${sentence}${beside.length === 0 ? "" : ` (${beside.join(", ")})`}`));
  };
}

/** Text that is no plain word stands in quotes, so that nobody's label or reason looks like further fields. */
function told(value: string | number | boolean): string {
  return typeof value !== "string" || /^[\w.:@/+-]+…?$/.test(value) ? String(value) : JSON.stringify(value);
}

type Fields = Readonly<Record<string, string | number | boolean>>;

function jsonOf(level: Level, message: string, error: unknown, fields: Fields): string {
  const { code } = (error ?? {}) as { readonly code?: unknown };
  return jsonLine({
    time: new Date().toISOString(),
    level,
    message: redacted(message),
    ...(error !== undefined && { error: errorText(error) }),
    ...(typeof code === "string" && { code }),
    ...fields,
  });
}

function fieldsOf(details: Omit<LogDetails, "level">): Fields {
  const fields: Record<string, string | number | boolean> = {};
  for (const [name, value] of Object.entries(details)) {
    if (value === undefined || value === null) continue;
    const most = name === "key" ? MOST_KEY_CHARS : MOST_CHARS;
    fields[name] = typeof value === "number" || typeof value === "boolean" ? value : cut(redacted(String(value)), most);
  }
  return fields;
}

/** An error and its causes in one line. */
function errorText(error: unknown): string {
  const said: string[] = [];
  let next: unknown = error;
  for (let depth = 0; depth < MOST_CAUSES && next !== undefined && next !== null; depth++) {
    const text = (next instanceof Error ? next.message : String(next)).replaceAll("\n", "; ");
    // who wraps an error often repeats it
    if (text !== "" && !said.some((earlier) => earlier.includes(text))) said.push(text);
    next = next instanceof Error ? next.cause : undefined;
  }
  return cut(redacted(said.join(": ")), MOST_CHARS);
}

function cut(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

/** Without the passwords that urls of stores may carry. */
function redacted(text: string): string {
  return text.replace(/(\w:\/\/)[^/@\s]*@/g, "$1");
}
