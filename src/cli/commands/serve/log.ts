/** The log of `holdfast serve` on stderr: sentences, or one JSON object per line. */

import type { LogFields, Logger, LogLevel } from "../../../server/logger.ts";
import { redactUrls } from "../../../util/redact-url.ts";
import { escapeControl, formatJsonLine, info, writeStderr } from "../../output.ts";

export const LOG_FORMATS = ["human", "json"] as const;
export type LogFormat = (typeof LOG_FORMATS)[number];

/** From everything to nothing. */
export const LOG_THRESHOLDS = ["debug", "info", "warn", "error", "none"] as const;
export type LogThreshold = (typeof LOG_THRESHOLDS)[number];

/** Longer values are cut: clients choose some of them. */
const MAX_CHARS = 500;
/** Keys may contain personal data: log enough to find a key, not all of it. */
const MAX_KEY_CHARS = 64;
/** The length of the chain of causes that is logged. */
const MAX_CAUSES = 4;

/** Logs lines of this level and above. */
export function createLogger(format: LogFormat, threshold: LogThreshold): Logger {
  return (message, error, details = {}) => {
    const { level = error === undefined ? "info" : "error", ...otherDetails } = details;
    if (LOG_THRESHOLDS.indexOf(level) < LOG_THRESHOLDS.indexOf(threshold)) return;
    const fields = toFields(otherDetails);
    if (format === "json") return writeStderr(formatJson(level, message, error, fields));
    const sentence = [redactUrls(message), ...(error === undefined ? [] : [formatError(error)])].join(": ");
    const fieldTexts = Object.entries(fields).flatMap(([name, value]) =>
      value === "" ? [] : `${name} ${formatField(value)}`,
    );
    const prefix = level === "warn" ? "warning: " : level === "error" ? "error: " : "";
    info(escapeControl(`${prefix}${sentence}${fieldTexts.length === 0 ? "" : ` (${fieldTexts.join(", ")})`}`));
  };
}

/** Quotes any text that is not a plain word: otherwise a client's label or reason could look like further fields. */
function formatField(value: string | number | boolean): string {
  return typeof value !== "string" || /^[\w.:@/+-]+…?$/.test(value) ? String(value) : JSON.stringify(value);
}

type Fields = Readonly<Record<string, string | number | boolean>>;

function formatJson(level: LogLevel, message: string, error: unknown, fields: Fields): string {
  const { code } = (error ?? {}) as { readonly code?: unknown };
  return formatJsonLine({
    time: new Date().toISOString(),
    level,
    message: redactUrls(message),
    ...(error !== undefined && { error: formatError(error) }),
    ...(typeof code === "string" && { code }),
    ...fields,
  });
}

function toFields(details: Omit<LogFields, "level">): Fields {
  const fields: Record<string, string | number | boolean> = {};
  for (const [name, value] of Object.entries(details)) {
    if (value === undefined || value === null) continue;
    const maxChars = name === "key" ? MAX_KEY_CHARS : MAX_CHARS;
    fields[name] =
      typeof value === "number" || typeof value === "boolean" ? value : truncate(redactUrls(String(value)), maxChars);
  }
  return fields;
}

/** An error and its causes on one line. */
function formatError(error: unknown): string {
  const messages: string[] = [];
  let current: unknown = error;
  for (let depth = 0; depth < MAX_CAUSES && current !== undefined && current !== null; depth++) {
    const text = (current instanceof Error ? current.message : String(current)).replaceAll("\n", "; ");
    // a wrapping error often repeats the message of its cause
    if (text !== "" && !messages.some((earlier) => earlier.includes(text))) messages.push(text);
    current = current instanceof Error ? current.cause : undefined;
  }
  return truncate(redactUrls(messages.join(": ")), MAX_CHARS);
}

function truncate(text: string, maxChars: number): string {
  return text.length > maxChars ? `${text.slice(0, maxChars)}…` : text;
}
