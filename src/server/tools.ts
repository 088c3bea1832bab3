/**
 * The frames of the lock protocol that serve people rather than locks: history, watch, unwatch, info. Whatever a caller
 * may not see is left out before anything is counted or cut.
 */

import type { Clock } from "../clock.ts";
import { systemClock } from "../clock.ts";
import { encodeError, encodeOk, isCount } from "../protocol/frames.ts";
import { ProtocolError } from "../protocol/hello.ts";
import type { ServerInfo } from "../protocol/tools.ts";
import { encodeEvents, encodeWatched } from "../protocol/tools.ts";
import type { Principal } from "./access.ts";
import { RIGHTS } from "./access.ts";
import { Refusal } from "./backend.ts";
import { Pace } from "./pace.ts";
import type { Record } from "./record.ts";

/** The connection a frame of the tools came on. */
interface Caller {
  readonly principal: Principal;
  /** Adds a frame to what is written next. */
  send(frame: string): void;
  /** Writes at once what there is. */
  flush(): void;
}

export interface Tools {
  /**
   * Answers a frame of the tools; false: it is none of them.
   * @throws ProtocolError if it is malformed
   */
  frame(caller: Caller, verb: unknown, n: number, frame: readonly unknown[]): boolean;
  /** The connection has ended, and with it what it followed. */
  left(caller: Caller): void;
}

export interface ToolsOptions {
  readonly record: Record;
  /** Events of one key in one answer. Default 100. */
  readonly mostEvents?: number;
  /** Watches of one connection. Default 16. */
  readonly mostWatches?: number;
  /** `history` frames of one connection that may wait. Default 16. */
  readonly mostHistories?: number;
  /** Default: the machine's. */
  readonly clock?: Clock;
  /** What the server says of itself. */
  readonly facts: () => Facts;
  /** Told of calls that are refused, by code. */
  readonly refused?: (code: string) => void;
}

/** Of ServerInfo what does not depend on who asks. */
export type Facts = Required<Omit<ServerInfo, "account" | "rights">>;

/** `history` frames that wait, of all connections. */
const MOST_WAITING = 1_000;

export function createTools({
  record,
  mostEvents = 100,
  mostWatches = 16,
  mostHistories = 16,
  clock = systemClock,
  facts,
  refused = () => undefined,
}: ToolsOptions): Tools {
  const watches = new Map<Caller, Map<number, Disposable>>();
  const pace = new Pace(clock, mostHistories, MOST_WAITING);

  /** Each looks through all events that are remembered, and a line has room for thousands of these frames. */
  function history(caller: Caller, n: number, frame: readonly unknown[]): void {
    const [key, max] = [textFrom(frame[2], "key"), countFrom(frame[3], "max")];
    const may = (one: string): boolean => caller.principal.may("inspect", one);
    // says nothing of what there is: it depends on the key's name alone
    if (!may(key)) throw new Refusal("FORBIDDEN", "this credential may not inspect this key");
    let isLate = false;
    pace.run(caller, () => {
      caller.send(encodeOk(n, encodeEvents(record.last(key, Math.min(max, mostEvents), may))));
      if (isLate) caller.flush();
    });
    isLate = true;
  }

  function watch(caller: Caller, n: number, frame: readonly unknown[]): string {
    const prefix = textFrom(frame[2], "prefix");
    const after = frame[3] === undefined ? record.newest : countFrom(frame[3], "after");
    const own = watches.get(caller) ?? new Map<number, Disposable>();
    if (own.has(n)) throw new ProtocolError("PROTOCOL", "a call's number must not be used twice");
    if (own.size >= mostWatches) throw new Refusal("LIMIT", `at most ${mostWatches} watches on a connection`);
    const may = (key: string): boolean => caller.principal.may("inspect", key);
    const following = record.subscribe(
      { prefix, may, by: caller.principal.name },
      ({ events, gap }) => {
        caller.send(encodeWatched(n, events, gap));
        caller.flush();
        // a caller that does not read is closed by its limit of unread bytes, and has left then
        return watches.get(caller)?.has(n) === true;
      },
      after,
    );
    watches.set(caller, own.set(n, following));
    return String(Math.min(after, record.newest));
  }

  function unwatch(caller: Caller, frame: readonly unknown[]): string {
    const own = watches.get(caller);
    const number = countFrom(frame[2], "the watch's number");
    const following = own?.get(number);
    if (own === undefined || following === undefined) return "0";
    following[Symbol.dispose]();
    own.delete(number);
    if (own.size === 0) watches.delete(caller);
    return "1";
  }

  function info({ principal }: Caller, frame: readonly unknown[]): string {
    const key = textFrom(frame[2] ?? "", "key");
    const { load, ...known } = facts();
    const mine: ServerInfo = {
      ...known,
      account: principal.name,
      rights: RIGHTS.filter((right) => principal.may(right, key)),
      ...(principal.may("inspect", "") && { load }),
    };
    return JSON.stringify(mine);
  }

  function resultOf(caller: Caller, verb: unknown, n: number, frame: readonly unknown[]): string | null {
    switch (verb) {
      case "watch":
        return watch(caller, n, frame);
      case "unwatch":
        return unwatch(caller, frame);
      case "info":
        return info(caller, frame);
      default:
        return null;
    }
  }

  return {
    frame(caller, verb, n, frame) {
      try {
        if (verb === "history") {
          history(caller, n, frame);
          return true;
        }
        const result = resultOf(caller, verb, n, frame);
        if (result !== null) caller.send(encodeOk(n, result));
        return result !== null;
      } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        refused(error.code);
        caller.send(encodeError(n, error.code, error.message));
        return true;
      }
    },
    left(caller) {
      for (const following of watches.get(caller)?.values() ?? []) following[Symbol.dispose]();
      watches.delete(caller);
      pace.left(caller);
    },
  };
}

function textFrom(raw: unknown, name: string): string {
  if (typeof raw !== "string") throw new ProtocolError("PROTOCOL", `${name} must be a string`);
  return raw;
}

function countFrom(raw: unknown, name: string): number {
  if (!isCount(raw)) throw new ProtocolError("PROTOCOL", `${name} must be a whole number`);
  return raw;
}
