/** Creates the error for a timed-out wait. It names the holder, from one read of the store's queue. */

import type { BlockerInfo } from "../errors.ts";
import { describePause, formatKeys, LockTimeoutError, StoreError } from "../errors.ts";
import type { ClaimView } from "../spi/driver.ts";
import { formatDuration } from "../util/duration.ts";
import { publicTag } from "../util/ids.ts";
import { withTimeout } from "../util/timeout.ts";
import type { ActiveClaim } from "./engine.ts";
import type { LockTarget } from "./lock-spec.ts";
import type { QueueReader, QueueSnapshot } from "./queue-reader.ts";
import { LOOKUP_TIMEOUT_MS } from "./queue-reader.ts";

interface EndedWait {
  readonly target: LockTarget;
  /** The claim of the local queue; null: it has none at the moment. */
  readonly activeClaim: ActiveClaim | null;
  /** The number of local requests ahead of this one. */
  readonly localAhead: number;
  readonly waitedMs: number;
  /** The keys that the async flow of the request held when it began to wait. */
  readonly heldKeys: readonly string[];
}

/**
 * Creates the error for a wait that has ended. Never rejects: if the store cannot be reached, the error names no
 * holder.
 */
export async function createTimeoutError(queueReader: QueueReader, wait: EndedWait): Promise<LockTimeoutError> {
  const { target, activeClaim, waitedMs, heldKeys } = wait;
  const { keys } = target;
  // before the lookup, during which the claim may end
  const paused = activeClaim?.currentPause(queueReader.scheduler.now());
  // if not, the lock may be free
  const isAnswered = activeClaim?.state.status !== "asking";
  const blocked = await withTimeout(
    queueReader.scheduler,
    LOOKUP_TIMEOUT_MS,
    findHolder(queueReader, wait),
    noBlocker,
  ).catch(noBlocker);
  const keysText = formatKeys(keys);
  const parts = [
    waitedMs === 0 ? `could not lock ${keysText} at once` : `waited ${formatDuration(waitedMs)} for ${keysText}`,
  ];
  if (blocked.holder !== undefined) {
    parts.push(`held by ${blocked.holder} for ${formatDuration(blocked.heldForMs ?? 0)}`);
  }
  if (paused !== undefined) parts.push(describePause(paused));
  const unanswered = `${queueReader.storeName}: the store has not answered the request`;
  if (!isAnswered) parts.push("the store has not answered");
  if (waitedMs > 0 && blocked.ahead !== undefined) parts.push(`${blocked.ahead} ahead in the queue`);
  const [first, ...rest] = parts;
  const message = rest.length === 0 ? `${first}` : `${first}: ${rest.join(", ")}`;
  return new LockTimeoutError(
    waitedMs > 0 && heldKeys.length > 0 ? `${message}; ${suggestOneRequest(keys, heldKeys)}` : message,
    paused === undefined ? blocked : { ...blocked, paused },
    { keys, ...(!isAnswered && { cause: new StoreError(unanswered, { keys }) }) },
  );
}

/** What to do about a deadlock between flows, each of which holds what another one waits for: the time-out may be one. */
function suggestOneRequest(keys: readonly string[], heldKeys: readonly string[]): string {
  const held = `this async flow holds ${formatKeys(heldKeys)}`;
  // permits of a semaphore, beside others of the same one
  if (keys.every((key) => heldKeys.includes(key)))
    return `${held} already: if others hold a part and wait for more, request all permits at once`;
  return `${held} meanwhile: if the holder waits for that, request all keys at once with locks.all()`;
}

/** The result if the lookup fails: its error must not replace the timeout error. */
const noBlocker = (): BlockerInfo => ({});

/** Finds the holder of the first key that is held by another claim, or by another request of this client. */
async function findHolder(queueReader: QueueReader, wait: EndedWait): Promise<BlockerInfo> {
  const { scheduler } = queueReader;
  const { target, activeClaim, localAhead } = wait;
  const deadline = scheduler.now() + LOOKUP_TIMEOUT_MS;
  const ownTag = activeClaim === null ? null : publicTag(activeClaim.claim.id);
  for (const { key } of target.locks) {
    if (scheduler.now() >= deadline) break;
    const queue = await queueReader.read(key);
    const holder = queue.views.find(({ answer, tag }) => answer.state === "held" && (localAhead > 0 || tag !== ownTag));
    if (holder !== undefined) return describeHolder(queue, holder, scheduler.now(), ownTag, localAhead);
  }
  return localAhead > 0 ? { ahead: localAhead } : {};
}

function describeHolder(
  { views, readAt }: QueueSnapshot,
  holder: ClaimView,
  now: number,
  ownTag: string | null,
  localAhead: number,
): BlockerInfo {
  const index = views.findIndex(({ tag }) => tag === ownTag);
  const ahead = (index === -1 ? views.length : index) + localAhead;
  return { holder: holder.label, heldForMs: (holder.heldMs ?? holder.ageMs) + now - readAt, ahead };
}
