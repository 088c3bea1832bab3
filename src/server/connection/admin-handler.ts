/**
 * The admin frames of the lock protocol: history, watch, unwatch, info. Whatever a caller may not see is removed before
 * anything is counted or cut.
 */

import type { Principal } from "../../auth/access-control.ts";
import { RIGHTS } from "../../auth/access-control.ts";
import { authorize, visibleKeys } from "../../auth/authorize.ts";
import type { ServerInfo } from "../../protocol/admin-frames.ts";
import { encodeEvents, encodeWatchFrame } from "../../protocol/admin-frames.ts";
import { encodeError, encodeOk, isCount } from "../../protocol/frames.ts";
import { ProtocolError } from "../../protocol/handshake.ts";
import type { Clock } from "../../util/clock.ts";
import type { EventLog } from "../events/event-log.ts";
import { RequestError } from "../request-error.ts";
import { JobQueue } from "../time-slicer.ts";

/** The connection on which an admin frame arrived. */
export interface Caller {
  readonly principal: Principal;
  /** Adds a frame to the pending output. */
  send(frame: string): void;
  /** Writes the pending output at once. */
  flush(): void;
}

export interface AdminHandler {
  /**
   * Answers an admin frame. Returns false if the frame is not an admin frame.
   * @throws ProtocolError if it is malformed
   */
  handleFrame(caller: Caller, verb: unknown, n: number, frame: readonly unknown[]): boolean;
  /** The connection has ended; so do its watches. */
  connectionClosed(caller: Caller): void;
}

export interface AdminHandlerOptions {
  readonly eventLog: EventLog;
  readonly clock: Clock;
  /** Status of the server, the same for every caller. */
  readonly serverStatus: () => ServerStatus;
  /** Called with the error code of each refused call. */
  readonly onRefused: (code: string) => void;
}

/** The part of ServerInfo that does not depend on the caller. */
export type ServerStatus = Required<Omit<ServerInfo, "account" | "rights">>;

/** Maximum number of events of one key in one answer: what people read. */
const MAX_EVENTS = 100;
/** Maximum number of watches of one connection: tools follow one prefix, or a few. */
const MAX_WATCHES = 16;
/** Maximum number of pending `history` frames of one connection, and of all: each scans all recorded events. */
const MAX_HISTORIES_PER_CONNECTION = 16;
const MAX_HISTORIES = 1_000;

export function createAdminHandler({ eventLog, clock, serverStatus, onRefused }: AdminHandlerOptions): AdminHandler {
  const subscriptionsByCaller = new Map<Caller, Map<number, Disposable>>();
  const histories = new JobQueue(clock, MAX_HISTORIES_PER_CONNECTION, MAX_HISTORIES);

  /** Runs in slices: each call scans all recorded events, and one line can contain thousands of these frames. */
  function history(caller: Caller, n: number, frame: readonly unknown[]): void {
    const [key, max] = [requireString(frame[2], "key"), requireCount(frame[3], "max")];
    // reveals nothing about existing locks: the answer depends on the key's name alone
    authorize(caller.principal, "inspect", [key]);
    const canInspect = visibleKeys(caller.principal);
    let isLate = false;
    histories.run(caller, () => {
      caller.send(encodeOk(n, encodeEvents(eventLog.history(key, Math.min(max, MAX_EVENTS), canInspect))));
      if (isLate) caller.flush();
    });
    isLate = true;
  }

  function watch(caller: Caller, n: number, frame: readonly unknown[]): string {
    const prefix = requireString(frame[2], "prefix");
    const afterSequence = frame[3] === undefined ? eventLog.newestSequence : requireCount(frame[3], "after");
    const callerSubscriptions = subscriptionsByCaller.get(caller) ?? new Map<number, Disposable>();
    if (callerSubscriptions.has(n)) throw new ProtocolError("PROTOCOL", "a call's number must not be used twice");
    if (callerSubscriptions.size >= MAX_WATCHES)
      throw new RequestError("LIMIT", `at most ${MAX_WATCHES} watches on a connection`);
    const subscription = eventLog.subscribe(
      { prefix, canSee: visibleKeys(caller.principal), account: caller.principal.name },
      ({ events, hasGap }) => {
        caller.send(encodeWatchFrame(n, events, hasGap));
        caller.flush();
        // a caller that does not read is closed by its limit of unread bytes; its watches have gone by then
        return subscriptionsByCaller.get(caller)?.has(n) === true;
      },
      afterSequence,
    );
    subscriptionsByCaller.set(caller, callerSubscriptions.set(n, subscription));
    return String(Math.min(afterSequence, eventLog.newestSequence));
  }

  function unwatch(caller: Caller, frame: readonly unknown[]): string {
    const callerSubscriptions = subscriptionsByCaller.get(caller);
    const number = requireCount(frame[2], "the watch's number");
    const subscription = callerSubscriptions?.get(number);
    if (callerSubscriptions === undefined || subscription === undefined) return "0";
    subscription[Symbol.dispose]();
    callerSubscriptions.delete(number);
    if (callerSubscriptions.size === 0) subscriptionsByCaller.delete(caller);
    return "1";
  }

  function info({ principal }: Caller, frame: readonly unknown[]): string {
    const key = requireString(frame[2] ?? "", "key");
    const { load, ...status } = serverStatus();
    const serverInfo: ServerInfo = {
      ...status,
      account: principal.name,
      rights: RIGHTS.filter((right) => principal.can(right, key)),
      ...(principal.can("inspect", "") && { load }),
    };
    return JSON.stringify(serverInfo);
  }

  function dispatch(caller: Caller, verb: unknown, n: number, frame: readonly unknown[]): string | null {
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
    handleFrame(caller, verb, n, frame) {
      try {
        if (verb === "history") {
          history(caller, n, frame);
          return true;
        }
        const result = dispatch(caller, verb, n, frame);
        if (result !== null) caller.send(encodeOk(n, result));
        return result !== null;
      } catch (error) {
        if (!(error instanceof RequestError)) throw error;
        onRefused(error.code);
        caller.send(encodeError(n, error.code, error.message));
        return true;
      }
    },
    connectionClosed(caller) {
      for (const subscription of subscriptionsByCaller.get(caller)?.values() ?? []) subscription[Symbol.dispose]();
      subscriptionsByCaller.delete(caller);
      histories.cancel(caller);
    },
  };
}

function requireString(raw: unknown, name: string): string {
  if (typeof raw !== "string") throw new ProtocolError("PROTOCOL", `${name} must be a string`);
  return raw;
}

function requireCount(raw: unknown, name: string): number {
  if (!isCount(raw)) throw new ProtocolError("PROTOCOL", `${name} must be a whole number`);
  return raw;
}
