/** Logs the events of a client with `logger`: one line for each, with a level that says whether someone must act. */

import { formatKeys } from "../errors.ts";
import type { Events, FailedOutcome, LockEvent, LockEvents } from "./events.ts";
import type { ClientLogger, LogLevel } from "./logger.ts";

type Line = readonly [level: LogLevel, message: string];

const FAILED_LINES: Readonly<Record<FailedOutcome, (name: string) => Line>> = {
  busy: (name) => ["debug", `${name} was busy`],
  timeout: (name) => ["warn", `the wait for ${name} has ended without the lock`],
  cancelled: (name) => ["debug", `the request for ${name} was cancelled`],
  error: (name) => ["error", `could not lock ${name}`],
};

/** The line of each event. Not logged: requested, since what comes of it is, and handedOff, which follows acquired. */
const LINES: { readonly [E in Exclude<keyof LockEvents, "requested" | "handedOff">]: (detail: LockEvents[E]) => Line } =
  {
    waiting: (detail) => ["debug", `waiting for ${name(detail)}`],
    acquired: (detail) => ["debug", `acquired ${name(detail)}`],
    attached: (detail) => ["debug", `attached ${name(detail)}`],
    detached: (detail) => ["debug", `detached ${name(detail)}`],
    released: (detail) => ["debug", `released ${name(detail)}`],
    failed: (detail) => FAILED_LINES[detail.outcome](name(detail)),
    renewed: ({ error }) => (error === undefined ? ["debug", "renewed leases"] : ["debug", "renewal failed"]),
    jeopardy: (detail) => ["warn", `the lease of ${name(detail)} is in doubt: a renewal failed or is late`],
    restored: (detail) => ["info", `the lease of ${name(detail)} is confirmed again`],
    lost: (detail) => ["error", `lost ${name(detail)}: ${detail.reason}`],
    clockStep: ({ source }) =>
      source === "store" ? ["warn", "the store's clock stepped"] : ["warn", "this machine was suspended"],
    storeDown: () => ["error", "the store cannot be reached"],
    storeUp: () => ["info", "the store answers again"],
  };

export function logEvents(events: Events, logger: ClientLogger, store: string): void {
  for (const event of Object.keys(LINES) as (keyof typeof LINES)[]) {
    const toLine = LINES[event] as (detail: LockEvents[typeof event]) => Line;
    events.on(event, (detail) => {
      const [level, message] = toLine(detail);
      logger[level]({ event, store, ...toFields(detail) }, message);
    });
  }
}

function name({ keys }: LockEvent): string {
  return formatKeys(keys);
}

/** JSON has no bigint; loggers know an error by the name `err`. */
function toFields(detail: object): Record<string, unknown> {
  const { error, token, ...fields } = detail as Readonly<Record<string, unknown>>;
  return {
    ...fields,
    ...(token !== undefined && { token: String(token) }),
    ...(error !== undefined && error !== null && { err: error }),
  };
}
