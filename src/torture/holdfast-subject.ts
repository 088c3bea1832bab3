/** Holdfast as the subject of a torture, through its public API. */

import type { Lock } from "../client/lock.ts";
import type { Lockable, Locks } from "../client/locks.ts";
import type { LocksOptions } from "../client/options.ts";
import { LockLostError, LockTimeoutError } from "../errors.ts";
import type { Operation } from "./history.ts";
import type { Hold, Subject, SubjectOptions } from "./subject.ts";

const CACHE = "5s";

/** @param open connects to the store */
export async function openHoldfast(
  open: (options: LocksOptions) => Promise<Locks>,
  { prefix, ttlMs }: SubjectOptions,
): Promise<Subject> {
  const locks = await open({ prefix, ttl: ttlMs });
  return {
    acquire: (operation) => (operation.kind === "leader" ? campaign(locks, operation) : acquire(locks, operation)),
    close: () => locks.close(),
  };
}

async function acquire(locks: Locks, operation: Omit<Operation, "op">): Promise<Hold | null> {
  const { kind, waitMs } = operation;
  try {
    const lock = await lockableOf(locks, operation).acquire({
      wait: waitMs,
      ...(kind === "strict" && { order: "strict" }),
      ...(kind === "cached" && { cache: CACHE }),
      ...(kind === "permits" && { permits: operation.permits }),
    });
    return toHold(locks, lock, () => lock.release());
  } catch (error) {
    if (error instanceof LockTimeoutError) return null;
    throw error;
  }
}

function lockableOf(locks: Locks, { kind, keys, limit }: Omit<Operation, "op">): Lockable<{ permits?: number }> {
  const [key = ""] = keys;
  if (kind === "reader") return locks.rw(key).read;
  if (kind === "permits") return locks.semaphore(key, limit as number);
  return keys.length > 1 ? locks.all(keys) : locks.mutex(key);
}

/** A candidate until the wait has passed, and for one term. */
async function campaign(locks: Locks, { keys, waitMs }: Omit<Operation, "op">): Promise<Hold | null> {
  const waiting = new AbortController();
  const timer = setTimeout(() => waiting.abort(), waitMs);
  const election = locks.leader(keys[0] as string, { signal: waiting.signal });
  const terms = election[Symbol.asyncIterator]();
  const next = await terms.next();
  clearTimeout(timer);
  if (next.done === true) return null;
  const term = next.value;
  return toHold(locks, term, async () => {
    const wasHeld = await term.resign();
    await terms.return();
    return wasHeld;
  });
}

function toHold(
  locks: Locks,
  lock: Pick<Lock, "grants" | "signal" | "remainingMs">,
  release: () => Promise<boolean>,
): Hold {
  const tokens =
    locks.traits?.fencing === false
      ? null
      : Object.fromEntries(lock.grants.map(({ key, token }) => [key, token.toString()]));
  return {
    tokens,
    leftMs: () => lock.remainingMs,
    onLost(listener) {
      const { signal } = lock;
      const tell = (): void => listener(signal.reason instanceof LockLostError ? signal.reason.reason : "unknown");
      if (signal.aborted) tell();
      else signal.addEventListener("abort", tell, { once: true });
    },
    release,
  };
}
