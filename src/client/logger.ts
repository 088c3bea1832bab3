/** The logger of a client: what it must have, and how warnings reach it. */

import { safeListener } from "../errors.ts";

type LogMethod = (fields: Readonly<Record<string, unknown>>, message: string) => void;

/**
 * A logger as pino has it; `console` fits, too. A method that throws causes a process warning and has no other effect.
 */
export interface ClientLogger {
  debug: LogMethod;
  info: LogMethod;
  warn: LogMethod;
  error: LogMethod;
}

export type LogLevel = keyof ClientLogger;

const LEVELS: readonly LogLevel[] = ["debug", "info", "warn", "error"];

/** A ClientLogger. */
export const loggerRule = (value: unknown): string | null => {
  const isLogger = LEVELS.every((level) => typeof (value as ClientLogger | null | undefined)?.[level] === "function");
  return isLogger ? null : "an object with the methods debug, info, warn and error";
};

export function logWarning(logger: ClientLogger, warning: string): void {
  safeListener(() => logger.warn({}, warning))();
}
