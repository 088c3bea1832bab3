/** createTestLocks(): locks in memory for the tests of code that locks. */

import { Client } from "../client/client.ts";
import type { Locks } from "../client/locks.ts";
import { bindLocks } from "../client/locks.ts";
import type { LocksOptions } from "../client/options.ts";
import { parseClientOptions } from "../client/options.ts";
import type { LostReason } from "../errors.ts";
import type { Duration } from "../util/duration.ts";
import { parseDuration } from "../util/duration.ts";
import { validateKey } from "../util/keys.ts";
import { requireObject, requireValid } from "../util/validate.ts";
import { manualClock, timersClock } from "./clocks.ts";
import type { OtherHolder } from "./controlled-store.ts";
import { ControlledStore } from "./controlled-store.ts";
import { ManualTime, settlePromises } from "./manual-time.ts";

/** Options of createTestLocks(). */
export interface TestLocksOptions extends Omit<LocksOptions, "clock"> {
  /**
   * "manual": time stands still until advance(). "timers": the date and the timeouts of the process, for tests that replace
   * them with fake timers and advance those. Default "manual".
   */
  readonly clock?: "manual" | "timers" | undefined;
}

/** Locks in memory whose time and faults a test controls. */
export interface TestLocks extends Locks {
  /**
   * Lets this time pass: leases are renewed or end, waits end. Settles when all promise reactions have run; with 0 it only
   * waits for these. @throws TypeError for a wrong duration, or if the clock is not manual
   */
  advance(by: Duration): Promise<void>;
  /**
   * Takes the key from its holders before it returns: their signals are aborted, and the key is free. Default reason
   * "expired". @throws TypeError for a wrong argument, or if no lock of these locks holds the key
   */
  lose(key: string, reason?: LostReason): void;
  /** Another process holds the key from now on. @throws TypeError if the key is wrong, or held */
  busy(key: string): OtherHolder;
  /** Calls fail from now on, as if the store could not be reached. */
  storeDown(): void;
  /** The store can be reached again. */
  storeUp(): void;
  /** The keys that the store has as held by these locks, sorted. Works while the store is down, too. */
  heldKeys(): readonly string[];
  /** Like Locks.close(), after storeUp(). So does what closeOnSignal() runs. */
  close(): Promise<void>;
}

const REASONS: readonly unknown[] = ["expired", "released", "revoked", "maxHold", "unknown"] satisfies LostReason[];

const clockRule = (value: unknown): string | null =>
  value === "manual" || value === "timers" ? null : '"manual" or "timers"';
const reasonRule = (value: unknown): string | null =>
  REASONS.includes(value) ? null : `one of ${REASONS.map((reason) => `"${reason}"`).join(", ")}`;

/** What a client loads when it first needs it: the file system is not part of the time that a test controls. */
async function loadAll(): Promise<void> {
  await Promise.all([
    import("../client/admin.ts"),
    import("../client/event-log.ts"),
    import("../client/transfer.ts"),
    import("../leader/leader.ts"),
    import("../leader/term.ts"),
  ]);
}

/**
 * Returns locks in the memory of this process, for one test. Nothing is random: retries have fixed intervals. Tokens start
 * at the date of the process.
 * @throws TypeError naming the wrong option
 */
export function createTestLocks(options: TestLocksOptions = {}): TestLocks {
  requireObject(options, "createTestLocks");
  const { clock: kind = "manual", ...others } = options;
  requireValid(kind, "clock", clockRule);
  const time = new ManualTime();
  const clock = kind === "manual" ? manualClock(time) : timersClock;
  const settings = parseClientOptions({ label: "test", ...others, clock }, "createTestLocks");
  const { prefix } = settings;
  const store = new ControlledStore(clock);
  const client = new Client(store.driver, settings, () => 0.5);
  const close = (): Promise<void> => {
    store.reconnect();
    return client.close();
  };
  return Object.assign(bindLocks(client), {
    async advance(by: Duration): Promise<void> {
      const ms = parseDuration(by, "by");
      if (kind !== "manual") throw new TypeError('advance() needs clock "manual": advance the fake timers instead');
      await loadAll();
      await time.advance(ms, settlePromises);
    },
    lose(key: string, reason: LostReason = "expired"): void {
      requireValid(reason, "reason", reasonRule);
      store.lose(prefix + validateKey(key), reason);
    },
    busy: (key: string) => store.holdAsOther(prefix + validateKey(key)),
    storeDown: () => store.disconnect(),
    storeUp: () => store.reconnect(),
    heldKeys: () => store.heldKeys().map((key) => key.slice(prefix.length)),
    close,
    [Symbol.asyncDispose]: close,
  });
}
