/** The server's log: one line per event, as text or JSON. No value can forge another line. */

/** The severity of a log message. */
export type LogLevel = "debug" | "info" | "warn" | "error";

/** The fields of a log line. Keys are shortened; secrets must not be passed. */
export interface LogFields {
  /** Default: "error" if there is an error, else "info". */
  readonly level?: LogLevel;
  readonly [name: string]: string | number | boolean | bigint | null | undefined;
}

/** Receives log messages: a sentence, the error if there is one, and the fields. */
export type Logger = (message: string, error?: unknown, details?: LogFields) => void;
