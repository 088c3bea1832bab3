/**
 * A driver that behaves as across a bad network: calls, replies and pushes are lost, late or repeated, and the
 * connection breaks. Faults are random, from a seed, or ordered by a test.
 *
 * It keeps the promises of the contract: no push outlives the connection it came over, disconnected() is called at every break
 * and reconnected() follows it, a repeated release reports its first answer, and a call arrives late only if its caller got an error.
 */

import { setTimeout as delay } from "node:timers/promises";
import type { Driver, DriverEvents } from "../../spi/driver.ts";
import { delegate } from "../delegate.ts";
import { createRandom } from "../random.ts";
import type { ChaosCommands, Gate, Verb } from "./commands.ts";
import { createFaultQueue } from "./commands.ts";
import { chaosError, createChaosConnection } from "./connection.ts";

export type { ChaosCommands, PausedCall, Verb } from "./commands.ts";

/** Random faults, as probabilities from 0 to 1 (default 0), and the inspection. */
export interface ChaosOptions {
  /** Default 1. */
  readonly seed?: number;
  /** A call never reaches the store. */
  readonly loseCall?: number;
  /** The store carries out the call, and the caller gets an error. */
  readonly loseReply?: number;
  /** The store gets the call twice: at once, or, if the caller got an error, the second time up to maxDelayMs later. */
  readonly repeatCall?: number;
  /** A call, or its reply, takes up to maxDelayMs. */
  readonly delayCall?: number;
  readonly losePush?: number;
  readonly repeatPush?: number;
  /** A push is up to maxDelayMs late. */
  readonly delayPush?: number;
  /** A push has no answer, only the hint that something may have changed. */
  readonly pushWithoutAnswer?: number;
  /** The connection breaks at a call, for up to maxDelayMs. */
  readonly disconnect?: number;
  /**
   * The longest delay, in milliseconds. Must be below the claims' leases, since a store forgets claims after them.
   * Default 10.
   */
  readonly maxDelayMs?: number;
  /** Called, and awaited, after each call that the store has answered, before the caller gets the answer. */
  readonly inspect?: () => Promise<unknown>;
}

/** A driver with faults, and the commands to order them. */
export interface ChaosDriver extends Driver, ChaosCommands {
  /** Breaks the connection: calls in flight and new ones fail, pushes are lost. */
  disconnect(): void;
  /** Connects again and calls reconnected(). */
  reconnect(): void;
}

interface FaultPlan {
  readonly loss: "call" | "reply" | null;
  readonly isRepeated: boolean;
  readonly duplicateDelayMs: number;
  readonly callDelayMs: number;
  readonly replyDelayMs: number;
  readonly callGate: Gate | undefined;
  readonly replyGate: Gate | undefined;
}

/** Wraps a driver. Without probabilities it has only the faults that the test orders. */
export function chaos(driver: Driver, options: ChaosOptions = {}): ChaosDriver {
  const random = createRandom(options.seed ?? 1);
  const maxDelayMs = options.maxDelayMs ?? 10;
  const faultQueue = createFaultQueue();
  const connection = createChaosConnection();
  const chance = (probability = 0): boolean => random.next() < probability;
  const randomDelayMs = (probability?: number): number => random.next() * (chance(probability) ? maxDelayMs : 0);

  function planFaults(verb: Verb): FaultPlan {
    faultQueue.recordCall(verb);
    const [call, reply] = [chance(options.loseCall), chance(options.loseReply)];
    return {
      loss: faultQueue.takeLoss(verb) ?? (call ? "call" : reply ? "reply" : null),
      isRepeated: chance(options.repeatCall),
      duplicateDelayMs: random.next() * maxDelayMs,
      callDelayMs: randomDelayMs(options.delayCall),
      replyDelayMs: randomDelayMs(options.delayCall),
      callGate: faultQueue.takeGate(verb, "before"),
      replyGate: faultQueue.takeGate(verb, "after"),
    };
  }

  async function applyFaults<T>(verb: Verb, faults: FaultPlan, send: () => Promise<T>): Promise<T> {
    // a closed driver must not be called: a call that was delayed until then is lost
    const call = async (): Promise<T> => {
      if (connection.isClosed) throw chaosError("the driver was closed");
      const answer = await send();
      await options.inspect?.();
      return answer;
    };
    if (faults.callDelayMs > 0) await delay(faults.callDelayMs);
    await faults.callGate?.arrive();
    if (faults.loss !== null && faults.isRepeated) {
      // the late call's answer and error are dropped
      connection.runAfter(faults.duplicateDelayMs, () => void call().then(ignoreError, ignoreError));
    }
    if (faults.loss === "call") throw chaosError(`a call of ${verb} was lost`);
    let answer = await call();
    if (faults.loss === null && faults.isRepeated) {
      const second = await call();
      if (verb !== "release" && verb !== "revoke") answer = second;
    }
    if (faults.replyDelayMs > 0) await delay(faults.replyDelayMs);
    await faults.replyGate?.arrive();
    if (faults.loss === "reply") throw chaosError(`a reply of ${verb} was lost`);
    return answer;
  }

  async function callWithFaults<T>(verb: Verb, call: () => Promise<T>): Promise<T> {
    const faults = planFaults(verb);
    if (chance(options.disconnect) && connection.isUp) {
      connection.disconnect();
      connection.runAfter(faults.duplicateDelayMs, () => connection.reconnect());
    }
    if (!connection.isUp) throw chaosError(`not connected (${verb})`);
    return connection.failOnDisconnect(() => applyFaults(verb, faults, call));
  }

  function wrapEvents(events: DriverEvents): DriverEvents {
    const push = (send: () => void, sendWithoutAnswer: () => void): void => {
      if (!connection.isUp || faultQueue.takePushLoss() || chance(options.losePush)) return;
      const { epoch } = connection;
      const sendPush = chance(options.pushWithoutAnswer) ? sendWithoutAnswer : send;
      const deliver = (): void => {
        if (connection.epoch === epoch) sendPush();
      };
      const waitMs = randomDelayMs(options.delayPush);
      if (waitMs > 0) connection.runAfter(waitMs, deliver);
      else deliver();
      if (chance(options.repeatPush)) connection.runAfter(random.next() * maxDelayMs, deliver);
    };
    const pushAsIs = (send: () => void): void => push(send, send);
    return {
      pushed: (id, answer) =>
        push(
          () => events.pushed(id, answer),
          () => events.recheck(id),
        ),
      recheck: (id) => pushAsIs(() => events.recheck(id)),
      disconnected: () => events.disconnected(),
      reconnected: () => pushAsIs(() => events.reconnected()),
      recalled: (id) => pushAsIs(() => events.recalled(id)),
      heldTokens: (id) => events.heldTokens(id),
    };
  }

  const { detach, revoke } = driver;
  const wrapped = delegate(driver, {
    open(events) {
      connection.onDisconnect = () => events.disconnected();
      connection.onReconnect = () => events.reconnected();
      return driver.open(wrapEvents(events));
    },
    claim: (claim) => callWithFaults("claim", () => driver.claim(claim)),
    renew: (claims, tokenCounts) => callWithFaults("renew", () => driver.renew(claims, tokenCounts)),
    release: (releases) => callWithFaults("release", () => driver.release(releases)),
    ...(detach && {
      detach: (claims, remainingMs) => callWithFaults("detach", () => detach.call(driver, claims, remainingMs)),
    }),
    ...(revoke && { revoke: (targets) => callWithFaults("revoke", () => revoke.call(driver, targets)) }),
    list: (query, options) => callWithFaults("list", () => driver.list(query, options)),
    close() {
      connection.close();
      return driver.close();
    },
  });
  return Object.assign(wrapped, faultQueue.commands, {
    disconnect: connection.disconnect,
    reconnect: connection.reconnect,
  });
}

function ignoreError(): void {
  // the caller already got another error
}
