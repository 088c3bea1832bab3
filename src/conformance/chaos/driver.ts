/**
 * A driver that behaves as one across a bad network: calls and replies are lost, late or repeated, pushes too, and the
 * connection breaks. At random by a seed, or on a test's command.
 *
 * It keeps the promises of the contract: no push outlives the connection it came over, notify(null) follows every break,
 * a release is not repeated behind the core's back (its first answer counts), and a call comes late only if its caller
 * was not answered.
 */

import { setTimeout as delay } from "node:timers/promises";
import type { Driver, Notify } from "../../spi/driver.ts";
import { delegate } from "../delegate.ts";
import { createRandom } from "../random.ts";
import type { ChaosCommands, Gate, Verb } from "./commands.ts";
import { createFaultQueue } from "./commands.ts";
import { chaosError, createChaosConnection } from "./connection.ts";

export type { ChaosCommands, PausedCall, Verb } from "./commands.ts";

/** What happens at random: probabilities from 0 to 1, 0 unless given; and what is looked at. */
export interface ChaosOptions {
  /** Default 1. */
  readonly seed?: number;
  /** A call never reaches the store. */
  readonly loseCall?: number;
  /** The store does what it was asked, and the caller sees an error. */
  readonly loseReply?: number;
  /** The store gets the call twice: at once, or, if the caller saw an error, the second time up to maxDelayMs later. */
  readonly repeatCall?: number;
  /** A call, or its reply, takes up to maxDelayMs. */
  readonly delayCall?: number;
  readonly losePush?: number;
  readonly repeatPush?: number;
  /** A push comes up to maxDelayMs later. */
  readonly delayPush?: number;
  /** A push says only that something may have changed. */
  readonly pushWithoutAnswer?: number;
  /** With a call the connection breaks, for up to maxDelayMs. */
  readonly disconnect?: number;
  /** Longest delay, in milliseconds; below the claims' leases, since a store forgets after them. Default 10. */
  readonly maxDelayMs?: number;
  /** Called, and waited for, after each call that the store has answered, before its caller hears of it. */
  readonly inspect?: () => Promise<unknown>;
}

/** A driver with chaos, and what a test may order. */
export interface ChaosDriver extends Driver, ChaosCommands {
  /** Breaks the connection: calls under way and new ones fail, pushes are lost. */
  disconnect(): void;
  /** Connects again, and says so by notify(null). */
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

/** Without probabilities nothing happens but what the test orders. */
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
    // a closed driver is not called: what was delayed until then never left
    const call = async (): Promise<T> => {
      if (connection.isClosed) throw chaosError("the driver was closed");
      const answer = await send();
      await options.inspect?.();
      return answer;
    };
    if (faults.callDelayMs > 0) await delay(faults.callDelayMs);
    await faults.callGate?.arrive();
    if (faults.loss !== null && faults.isRepeated) {
      // nobody hears of the late one, neither of its answer nor of its error
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

  function wrapNotify(notify: Notify): Notify {
    return (id, answer) => {
      if (!connection.isUp || faultQueue.takePushLoss() || chance(options.losePush)) return;
      const { epoch } = connection;
      const pushedAnswer = chance(options.pushWithoutAnswer) ? undefined : answer;
      const deliver = (): void => {
        if (connection.epoch !== epoch) return;
        if (pushedAnswer === undefined) notify(id);
        else notify(id, pushedAnswer);
      };
      const waitMs = randomDelayMs(options.delayPush);
      if (waitMs > 0) connection.runAfter(waitMs, deliver);
      else deliver();
      if (chance(options.repeatPush)) connection.runAfter(random.next() * maxDelayMs, deliver);
    };
  }

  const { detach, revoke } = driver;
  const wrapped = delegate(driver, {
    open(notify) {
      connection.onReconnect = () => notify(null);
      return driver.open(wrapNotify(notify));
    },
    claim: (claim) => callWithFaults("claim", () => driver.claim(claim)),
    renew: (claims) => callWithFaults("renew", () => driver.renew(claims)),
    release: (claims, unanswered) => callWithFaults("release", () => driver.release(claims, unanswered)),
    ...(detach && { detach: (claims, leftMs) => callWithFaults("detach", () => detach.call(driver, claims, leftMs)) }),
    ...(revoke && { revoke: (targets) => callWithFaults("revoke", () => revoke.call(driver, targets)) }),
    list: (filter, max, after, signal) => callWithFaults("list", () => driver.list(filter, max, after, signal)),
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
  // an error that has no caller any more
}
