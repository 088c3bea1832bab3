/** Detaches and attaches locks; loaded on first use. */

import { resumeClaim } from "../claim/resume.ts";
import type { ClosedError, LostReason } from "../errors.ts";
import { formatKeys, isFatalError, LockLostError, lockLostError, UnsupportedError, wrapStoreError } from "../errors.ts";
import type { DetachedClaim } from "../protocol/lock-reference.ts";
import { decodeReference, encodeReference } from "../protocol/lock-reference.ts";
import type { Traits } from "../spi/driver.ts";
import { describeValue, formatDuration, parseDuration } from "../util/duration.ts";
import { sleep } from "../util/timeout.ts";
import { noProblem, validateOptions } from "../util/validate.ts";
import type { ActiveClaim, ClaimListener, Engine, ListenerEffect } from "./engine.ts";
import type { LocalHold } from "./local-hold.ts";
import type { ClientContext } from "./local-queue.ts";
import { LocalQueue } from "./local-queue.ts";
import type { DetachOptions } from "./options.ts";
import { toClaimSettings } from "./options.ts";

type LocalHolds = readonly [LocalHold, ...LocalHold[]];

/** What detach() needs of the handle of a lock. */
interface DetachableLock {
  readonly keys: readonly string[];
  readonly localHolds: LocalHolds;
  readonly remainingMs: number;
  throwIfLost(): void;
  transferOut(loss: LockLostError): void;
}

/** The interval of retries if the store does not confirm a shortened lease. */
const RETRY_INTERVAL_MS = 100;

/** See Lock.detach(). */
export async function detach(lock: DetachableLock, options: DetachOptions = {}): Promise<string> {
  const { keys, localHolds } = lock;
  const newTtlMs = parseTtlOption(options, lock);
  lock.throwIfLost();
  const { engine, traits } = localHolds[0].queue.context;
  for (const { activeClaim, refCount, openFlows } of localHolds) {
    const problem = detachProblem(traits, engine.driver.name, activeClaim.claim.ttlMs, refCount, openFlows);
    if (problem !== null) throw new UnsupportedError(`cannot detach ${formatKeys(keys)}: ${problem}`, { keys });
  }
  const activeClaims = localHolds.map(({ activeClaim }) => activeClaim);
  for (const activeClaim of activeClaims) engine.startDetaching(activeClaim, newTtlMs !== undefined);
  let wereHeld: readonly boolean[];
  try {
    wereHeld =
      newTtlMs === undefined
        ? await engine.scheduler.waitForCall(lock.remainingMs, () => detachClaims(engine, activeClaims))
        : await detachWithTtl(engine, activeClaims, newTtlMs, lock.remainingMs);
  } catch (error) {
    // the store may have shortened the lease even if its answer was lost: the lock must not be used here any more
    if (newTtlMs !== undefined) lock.transferOut(lockLostError("unknown", keys));
    throw wrapStoreError(error, `could not detach ${formatKeys(keys)}`, keys);
  }
  if (wereHeld.includes(false)) throw lockLostError("unknown", keys);
  if (newTtlMs === undefined) lock.throwIfLost();
  else if (!localHolds.every(({ isOpen }) => isOpen)) throw lockLostError("released", keys);
  const reference = toReference(lock);
  const message = `the lock on ${formatKeys(keys)} was detached and is no longer held by this lock object`;
  lock.transferOut(new LockLostError(message, "released", { keys }));
  return reference;
}

/**
 * Returns a lock's secret reference without detaching it: for the command line, which passes it to its child process.
 */
export function toReference(lock: object): string {
  if (!("localHolds" in lock)) throw new TypeError("lock must come from acquire()");
  const { localHolds } = lock as DetachableLock;
  const { prefix } = localHolds[0].queue.context.settings;
  return encodeReference(
    localHolds.map(({ activeClaim, token }) => {
      const firstToken = activeClaim.state.status === "held" ? activeClaim.state.token : token;
      return { claim: activeClaim.claim, firstToken, token, prefix };
    }),
  );
}

/** @throws TypeError naming the option */
function parseTtlOption(options: DetachOptions, { localHolds }: DetachableLock): number | undefined {
  validateOptions("detach", options, { ttl: noProblem });
  const { ttl } = options;
  if (ttl === undefined) return undefined;
  const newTtlMs = parseDuration(ttl, "ttl", 1);
  for (const { activeClaim } of localHolds) {
    const { ttlMs } = activeClaim.claim;
    if (ttlMs === "session" || newTtlMs <= ttlMs) continue;
    throw new TypeError(`ttl must be at most the lock's own of ${formatDuration(ttlMs)}, not ${describeValue(ttl)}`);
  }
  return newTtlMs;
}

/**
 * Detaches with newTtlMs of the lease left, counted from now. Repeats the call until the store confirms it, each time
 * with the remainder. It stops at the earlier end of both leases, so the lock is never assumed longer than the store
 * keeps it, whichever of the calls the store has received.
 */
async function detachWithTtl(
  engine: Engine,
  activeClaims: readonly ActiveClaim[],
  newTtlMs: number,
  remainingMs: number,
): Promise<readonly boolean[]> {
  const startedAt = engine.clock.now();
  const timeoutMs = Math.min(newTtlMs, remainingMs);
  for (;;) {
    const elapsedMs = engine.clock.now() - startedAt;
    try {
      const call = (): Promise<readonly boolean[]> =>
        detachClaims(engine, activeClaims, Math.max(Math.ceil(newTtlMs - elapsedMs), 1));
      return await engine.scheduler.waitForCall(timeoutMs - elapsedMs, call);
    } catch (error) {
      if (isFatalError(error) || engine.clock.now() - startedAt + RETRY_INTERVAL_MS >= timeoutMs) throw error;
      await sleep(engine.scheduler, RETRY_INTERVAL_MS);
    }
  }
}

/** Without Driver.detach no claim belongs to a session: renewing gives it a full lease. */
async function detachClaims(
  engine: Engine,
  activeClaims: readonly ActiveClaim[],
  newTtlMs?: number,
): Promise<readonly boolean[]> {
  const { driver } = engine;
  const claims = activeClaims.map(({ claim }) => claim);
  if (driver.detach !== undefined) return driver.detach(claims, newTtlMs);
  const answers = await driver.renew(claims);
  return answers.map((answer) => {
    // unknown is not lost
    if (answer === undefined) throw new Error(`${driver.name}: no answer for this claim`);
    return answer.state === "held";
  });
}

function detachProblem(
  traits: Traits,
  driverName: string,
  ttl: number | "session",
  refCount: number,
  openFlows: number,
): string | null {
  if (!traits.lease.claim) return `${driverName} has only session leases: all locks end with the client's session`;
  if (ttl === "session") return 'a "session" lease ends with its session';
  if (openFlows > 0) return "it is held by using() or run()";
  return refCount > 1 ? "another request has joined it" : null;
}

/**
 * Returns the local holds of a reference once the store has confirmed that it is still held.
 * @throws TypeError for a damaged reference; UnsupportedError if this client already holds the lock; LockLostError with
 * the reason; StoreError if the store did not answer
 */
export async function attach(context: ClientContext, reference: unknown): Promise<LocalHolds> {
  const parts = decodeReference(reference);
  const { engine } = context;
  for (const { claim, prefix } of parts) {
    // with two local runs of one claim, each push about its end would reach only one of them
    if (!engine.listClaims().some((activeClaim) => activeClaim.claim.id === claim.id)) continue;
    const keys = claim.locks.map(({ key }) => key.slice(prefix.length));
    throw new UnsupportedError(`this client already holds the detached lock on ${formatKeys(keys)}`, { keys });
  }
  const results = await Promise.allSettled(parts.map((part) => new AttachAttempt(context, part).result));
  const localHolds: LocalHold[] = [];
  for (const result of results) if (result.status === "fulfilled") localHolds.push(result.value);
  const failure = results.find((result) => result.status === "rejected");
  if (failure !== undefined) {
    // transfer out instead of releasing: the caller may retry with the same reference
    for (const localHold of localHolds) localHold.queue.transferOut(localHold);
    throw failure.reason;
  }
  const lostHold = localHolds.find((localHold) => !localHold.isHeld(localHold.observe()));
  if (lostHold !== undefined) {
    // this part was lost while the others were being confirmed
    for (const localHold of localHolds) if (localHold !== lostHold) localHold.queue.transferOut(localHold);
    throw lostHold.toLostError();
  }
  return localHolds as [LocalHold, ...LocalHold[]];
}

/** Attaches one detached claim. The client holds it once the store has confirmed it. */
class AttachAttempt implements ClaimListener {
  /**
   * Rejects with LockLostError and the reason, or with StoreError if the store did not answer for the length of the
   * lease.
   */
  readonly result: Promise<LocalHold>;
  readonly #context: ClientContext;
  readonly #keys: readonly string[];
  readonly #token: bigint;
  readonly #activeClaim: ActiveClaim;
  #resolve!: (localHold: LocalHold) => void;
  #reject!: (error: unknown) => void;

  constructor(context: ClientContext, { claim, firstToken, token, prefix }: DetachedClaim) {
    this.#context = context;
    this.#keys = claim.locks.map(({ key }) => key.slice(prefix.length));
    this.#token = token;
    this.result = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    const settings = toClaimSettings(claim.ttlMs, true, context.traits, context.settings);
    const now = context.engine.clock.now();
    this.#activeClaim = context.engine.resume(claim, settings, this, resumeClaim(settings, now, firstToken, 1), now);
  }

  onEffect(effect: ListenerEffect): void {
    if (effect === "restored") this.#onConfirmed();
    else if (effect === "lose") this.#onLost();
  }

  tokensToRenew(): number {
    return 0;
  }

  onClose(error: ClosedError): void {
    this.#fail(error);
  }

  giveBack(): void {
    // this client does not hold the lock yet
  }

  #onConfirmed(): void {
    const { locks, ttlMs } = this.#activeClaim.claim;
    const queue = new LocalQueue(this.#context, { locks, keys: this.#keys }, ttlMs, "alone");
    this.#resolve(queue.takeOver(this.#activeClaim, this.#token));
  }

  #onLost(): void {
    const { lastError, state } = this.#activeClaim;
    const reason = state.status === "lost" ? state.reason : "unknown";
    const isUnanswered = reason === "expired" && lastError !== null;
    this.#fail(
      isUnanswered
        ? wrapStoreError(lastError, `could not attach ${formatKeys(this.#keys)}`, this.#keys)
        : attachLostError(reason, this.#keys),
    );
  }

  /** Releases nothing, so that attaching with the same reference can be retried. */
  #fail(error: unknown): void {
    this.#context.engine.forget(this.#activeClaim);
    this.#reject(error);
  }
}

function attachLostError(reason: LostReason, keys: readonly string[]): LockLostError {
  if (reason !== "unknown") return lockLostError(reason, keys);
  const message = `no such lock on ${formatKeys(keys)}: it was released, or its lease expired long ago`;
  return new LockLostError(message, reason, { keys });
}
