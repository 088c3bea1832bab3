/**
 * Watches over keys that outer runs hold for us. A server of ours tells what happens to a key, and is then asked; any
 * other store is asked now and then.
 */

import type { ToolLink } from "../drivers/server/tool-link.ts";
import type { Driver } from "../spi/driver.ts";
import type { Joined } from "./nested.ts";

/** How often it is asked whether they are still held, where nobody tells us; and where somebody does. */
const ASK_MS = 2_000;
const ASK_TOLD_MS = 30_000;
/** Nobody tells of renewals: so often in a lease it is asked how far it goes. */
const ASKS_A_LEASE = 12;
/** The longest that a timer can be set to. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** About one key. */
interface Question {
  readonly one: Joined;
  ask(): void;
  /** As the last answer said. */
  until(): number;
  stop(): void;
}

/** A watch that has begun. */
export interface Outer {
  /** What is left of the lease that ends first, as far as we know. */
  remainingMs(): number;
  stop(): void;
}

/** Calls `gone` for a key that is not held any more, or whose lease has ended by our clock. */
export function watchOuter(
  driver: Driver,
  joined: readonly Joined[],
  gone: (key: string, reason: "released" | "expired") => void,
): Outer {
  const links: ToolLink[] = [];
  const leases = joined.map(({ leaseMs }) => (leaseMs ?? Number.POSITIVE_INFINITY) / ASKS_A_LEASE);
  let over = false;
  let timer = every(ASK_MS);

  /** One question at a time; what happens meanwhile is asked about afterwards. */
  function asking(one: Joined): Question {
    let state: "idle" | "asking" | "again" = "idle";
    let until = one.heldUntil;
    let end = endLater();

    function endLater(): NodeJS.Timeout {
      const expire = (): void => {
        if (until > performance.now()) end = endLater();
        else if (!over) gone(one.key, "expired");
      };
      return setTimeout(expire, Math.min(until - performance.now(), LONGEST_TIMER_MS)).unref();
    }

    const ask = (): void => {
      if (over || state !== "idle") {
        state = state === "idle" ? "idle" : "again";
        return;
      }
      state = "asking";
      // unknown is not lost: the lease ends by our clock
      void one
        .ask()
        .catch(() => until)
        .then((answer) => {
          if (answer === null && !over) gone(one.key, "released");
          if (answer !== null && !over) {
            until = answer;
            clearTimeout(end);
            end = endLater();
          }
          const again = state === "again";
          state = "idle";
          if (again) ask();
        });
    };
    return { one, ask, until: () => until, stop: () => clearTimeout(end) };
  }

  const questions = joined.map(asking);

  function askAll(): void {
    for (const { ask } of questions) ask();
  }

  async function follow(): Promise<void> {
    const { openTools } = await import("../drivers/server/tool-link.ts");
    for (const { one, ask } of questions) {
      const link = await openTools(driver);
      if (link === null) return;
      if (over) return link.close();
      links.push(link);
      link.watch(one.key, { events: ask, up: ask, down: () => undefined, refused: unfollowed });
    }
    askEvery(ASK_TOLD_MS);
    // it may have ended before we were told of anything
    askAll();
  }

  function unfollowed(): void {
    askEvery(ASK_MS);
  }

  function askEvery(ms: number): void {
    clearInterval(timer);
    if (!over) timer = every(ms);
  }

  function every(ms: number): NodeJS.Timeout {
    return setInterval(askAll, Math.min(ms, ...leases));
  }

  follow().catch(unfollowed);
  return {
    remainingMs: () => Math.min(...questions.map(({ until }) => until())) - performance.now(),
    stop() {
      over = true;
      clearInterval(timer);
      for (const { stop } of questions) stop();
      for (const link of links) link.close();
    },
  };
}
