/** What the server tells people: one line an event, for eyes or as JSON, with nothing in it that could forge another. */

/** How much it matters. */
export type LogLevel = "debug" | "info" | "warn" | "error";

/** What stands beside the sentence in a log line. Keys are shortened; secrets have no place here. */
export interface LogFields {
  /** Default: "error" where there is an error, else "info". */
  readonly level?: LogLevel;
  readonly [name: string]: string | number | boolean | bigint | null | undefined;
}

/** Told what people should know: one sentence, the error where there is one, and what a program would like to know. */
export type Logger = (message: string, error?: unknown, details?: LogFields) => void;
