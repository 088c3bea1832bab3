/**
 * Watches that the command never works without the lock: on a lease that is not renewed TERM goes out so early that KILL
 * is due before the lease can end; on a loss at once.
 */

import { shownDuration } from "../duration.ts";
import type { LostReason } from "../spi/driver.ts";
import type { Child } from "./child.ts";
import { CommandError } from "./failure.ts";
import type { Guard } from "./guard.ts";
import type { Held } from "./held.ts";
import { quotedList } from "./output.ts";
import type { Voice } from "./voice.ts";

/** What is done with the command when its lock is being lost. */
export type OnLost = "term" | "kill" | "ignore";

/** How to watch. */
export interface Watch {
  readonly held: Held;
  readonly child: Child;
  readonly guard: Guard | null;
  readonly onLost: OnLost;
  /** From TERM to KILL. */
  readonly graceMs: number;
  readonly voice: Voice;
}

/** A watch that has begun. */
export interface Supervision {
  /** The command was ended by us, or null. */
  readonly failure: CommandError | null;
  /** To be awaited when the command has ended: nothing that we ended is left. */
  stop(): Promise<void>;
}

/** How often a lease is looked at, in parts of its length. */
const LOOKS = 6;
/** Part of a lease, out of the tenth that our clock leaves unused: so that not both of us send TERM. */
const AFTER_US = 0.01;
const SHORTEST_LOOK_MS = 10;
/** The guard kills; should it be gone, we do, this much later. */
const LATE_MS = 100;

/**
 * Tells the guard when to end the child should we fall silent: a moment after we would. To be called first before the
 * child is started, since we may be stopped at any time.
 */
export function arm(guard: Guard | null, held: Held, leadMs: number): void {
  if (held.leaseMs !== null) guard?.lease(held.remainingMs() - leadMs + held.leaseMs * AFTER_US);
}

/** Begins to watch. */
export function supervise({ held, child, guard, onLost, graceMs, voice }: Watch): Supervision {
  const { leaseMs } = held;
  let failure: CommandError | null = null;
  let ending: Promise<unknown> = Promise.resolve();
  let timer: NodeJS.Timeout | undefined;
  let killer: NodeJS.Timeout | undefined;

  const end = (why: CommandError, said: string, killMs: number): void => {
    clearTimeout(timer);
    if (failure !== null) return;
    if (onLost === "ignore" && why.why === "lost") {
      voice.tell(`${said}: the command goes on without it (--on-lost ignore)`);
      return;
    }
    failure = why;
    const graceful = onLost !== "kill" && killMs > 0;
    voice.tell(
      `${said}: sent ${graceful ? "TERM" : "KILL"} to ${child.pid}${graceful ? `; KILL in ${shownDuration(killMs)}` : ""}`,
    );
    if (guard !== null) ending = guard.end(graceful ? killMs : 0);
    else child.signal(graceful ? "SIGTERM" : "SIGKILL");
    killer = setTimeout(() => child.signal("SIGKILL"), graceful ? killMs + LATE_MS : 0);
  };

  const lost = (): void => {
    const reason = reasonOf(held.lost.reason);
    const keys = quotedList(held.keys);
    if (reason === "maxHold") {
      const why = new CommandError(
        "maxHold",
        `${keys} was held for the longest time that --max-hold or the server allows; the command was ended`,
      );
      return end(why, `${keys} was held for as long as --max-hold or the server allows`, graceMs);
    }
    // the lease has ended by our clock: there is no time left for grace
    const killMs = reason === "expired" && leaseMs !== null ? 0 : graceMs;
    end(lostError(held, reason), `lost ${keys} (${reason})`, killMs);
  };

  const look = (): void => {
    if (leaseMs === null || held.lost.aborted) return;
    const remainingMs = held.remainingMs();
    const leadMs = onLost === "term" ? graceMs : 0;
    if (onLost === "term" && remainingMs <= leadMs) {
      const silentMs = Math.max(0.9 * leaseMs - remainingMs, 0);
      const said = `losing ${quotedList(held.keys)} (${held.whyLosing(silentMs)})`;
      return end(lostError(held, "expired"), said, remainingMs);
    }
    arm(guard, held, leadMs);
    timer = setTimeout(look, Math.max(Math.min(remainingMs - leadMs, leaseMs / LOOKS), SHORTEST_LOOK_MS));
  };

  if (held.lost.aborted) lost();
  else held.lost.addEventListener("abort", lost, { once: true });
  look();
  return {
    get failure() {
      return failure;
    },
    async stop() {
      held.lost.removeEventListener("abort", lost);
      clearTimeout(timer);
      await ending;
      clearTimeout(killer);
    },
  };
}

/** The exit 123 of keys that were lost. */
export function lostError({ keys }: { readonly keys: readonly string[] }, reason: LostReason): CommandError {
  return new CommandError("lost", `lost ${quotedList(keys)} (${reason}); the command was ended`, {
    details: { reason },
  });
}

function reasonOf(error: unknown): LostReason {
  return (error as { readonly reason?: LostReason } | undefined)?.reason ?? "unknown";
}
