/**
 * A driver that behaves as one across a bad network: calls and replies are lost, late or repeated, pushes too, and the
 * connection breaks. At random by a seed, or on a test's command.
 *
 * It keeps the promises of the contract: no push outlives the connection it came over, notify(null) follows every break,
 * a release is not repeated behind the core's back (its first answer counts), and a call comes late only if its caller
 * was not answered.
 */

import { setTimeout as delay } from "node:timers/promises";
import type { Driver, Notify } from "../spi/driver.ts";
import { broken, chaosLine } from "./chaos/line.ts";
import type { Commands, Gate, Verb } from "./chaos/orders.ts";
import { chaosOrders } from "./chaos/orders.ts";
import { delegate } from "./delegate.ts";
import { randomOf } from "./random.ts";

export type { Commands, Stopped, Verb } from "./chaos/orders.ts";

/** What happens at random: probabilities from 0 to 1, 0 unless given; and what is looked at. */
export interface ChaosOptions {
  /** Default 1. */
  readonly seed?: number;
  /** A call never reaches the store. */
  readonly loseCall?: number;
  /** The store does what it was asked, and the caller sees an error. */
  readonly loseReply?: number;
  /** The store gets the call twice: at once, or, if the caller saw an error, the second time up to longestMs later. */
  readonly repeatCall?: number;
  /** A call, or its reply, takes up to longestMs. */
  readonly delayCall?: number;
  readonly losePush?: number;
  readonly repeatPush?: number;
  /** A push comes up to longestMs later. */
  readonly delayPush?: number;
  /** A push says only that something may have changed. */
  readonly blurPush?: number;
  /** With a call the connection breaks, for up to longestMs. */
  readonly disconnect?: number;
  /** Longest delay, in milliseconds; below the claims' leases, since a store forgets after them. Default 10. */
  readonly longestMs?: number;
  /** Called, and waited for, after each call that the store has answered, before its caller hears of it. */
  readonly inspect?: () => Promise<unknown>;
}

/** A driver with chaos, and what a test may order. */
export interface ChaosDriver extends Driver, Commands {
  /** Breaks the connection: calls under way and new ones fail, pushes are lost. */
  cut(): void;
  /** Connects again, and says so by notify(null). */
  heal(): void;
}

interface Fate {
  readonly lose: "call" | "reply" | null;
  readonly repeat: boolean;
  readonly lateMs: number;
  readonly beforeMs: number;
  readonly afterMs: number;
  readonly before: Gate | undefined;
  readonly after: Gate | undefined;
}

/** Without probabilities nothing happens but what the test orders. */
export function chaos(driver: Driver, options: ChaosOptions = {}): ChaosDriver {
  const random = randomOf(options.seed ?? 1);
  const longestMs = options.longestMs ?? 10;
  const orders = chaosOrders();
  const line = chaosLine();
  const chance = (probability = 0): boolean => random.next() < probability;
  const some = (probability?: number): number => random.next() * (chance(probability) ? longestMs : 0);

  function fateOf(verb: Verb): Fate {
    orders.count(verb);
    const [call, reply] = [chance(options.loseCall), chance(options.loseReply)];
    return {
      lose: orders.lossOf(verb) ?? (call ? "call" : reply ? "reply" : null),
      repeat: chance(options.repeatCall),
      lateMs: random.next() * longestMs,
      beforeMs: some(options.delayCall),
      afterMs: some(options.delayCall),
      before: orders.gateOf(verb, "before"),
      after: orders.gateOf(verb, "after"),
    };
  }

  async function carry<T>(verb: Verb, fate: Fate, send: () => Promise<T>): Promise<T> {
    // a closed driver is not called: what was delayed until then never left
    const call = async (): Promise<T> => {
      if (line.isClosed) throw broken("the driver was closed");
      const answer = await send();
      await options.inspect?.();
      return answer;
    };
    if (fate.beforeMs > 0) await delay(fate.beforeMs);
    await fate.before?.arrive();
    if (fate.lose !== null && fate.repeat) {
      // nobody hears of the late one, neither of its answer nor of its error
      line.soon(fate.lateMs, () => void call().then(ignore, ignore));
    }
    if (fate.lose === "call") throw broken(`a call of ${verb} was lost`);
    let answer = await call();
    if (fate.lose === null && fate.repeat) {
      const second = await call();
      if (verb !== "release" && verb !== "revoke") answer = second;
    }
    if (fate.afterMs > 0) await delay(fate.afterMs);
    await fate.after?.arrive();
    if (fate.lose === "reply") throw broken(`a reply of ${verb} was lost`);
    return answer;
  }

  async function disturb<T>(verb: Verb, call: () => Promise<T>): Promise<T> {
    const fate = fateOf(verb);
    if (chance(options.disconnect) && line.isUp) {
      line.cut();
      line.soon(fate.lateMs, () => line.heal());
    }
    if (!line.isUp) throw broken(`not connected (${verb})`);
    return line.untilCut(() => carry(verb, fate, call));
  }

  function pushing(sink: Notify): Notify {
    return (id, answer) => {
      if (!line.isUp || orders.losesPush() || chance(options.losePush)) return;
      const { life } = line;
      const known = chance(options.blurPush) ? undefined : answer;
      const say = (): void => {
        if (line.life !== life) return;
        if (known === undefined) sink(id);
        else sink(id, known);
      };
      const waitMs = some(options.delayPush);
      if (waitMs > 0) line.soon(waitMs, say);
      else say();
      if (chance(options.repeatPush)) line.soon(random.next() * longestMs, say);
    };
  }

  const { detach, revoke } = driver;
  const disturbed = delegate(driver, {
    open(sink) {
      line.onHeal = () => sink(null);
      return driver.open(pushing(sink));
    },
    claim: (claim) => disturb("claim", () => driver.claim(claim)),
    renew: (claims) => disturb("renew", () => driver.renew(claims)),
    release: (claims, unanswered) => disturb("release", () => driver.release(claims, unanswered)),
    ...(detach && { detach: (claims, leftMs) => disturb("detach", () => detach.call(driver, claims, leftMs)) }),
    ...(revoke && { revoke: (targets) => disturb("revoke", () => revoke.call(driver, targets)) }),
    list: (filter, max, after, signal) => disturb("list", () => driver.list(filter, max, after, signal)),
    close() {
      line.close();
      return driver.close();
    },
  });
  return Object.assign(disturbed, orders.commands, { cut: line.cut, heal: line.heal });
}

function ignore(): void {
  // an error that has no caller any more
}
