/**
 * Faults put into the code on purpose, each a change of text that must match exactly once. The simulator or the tests of
 * core must notice every one of them: else they would not notice the same fault made by accident.
 */

import { readFileSync } from "node:fs";
import { CRON_MUTANTS } from "./cron-mutants.ts";
import { DATA_LOSS_MUTANTS } from "./data-loss-mutants.ts";
import { FENCE_MUTANTS } from "./fence-mutants.ts";
import { HTTP_MUTANTS } from "./http-mutants.ts";
import { LEADER_MUTANTS } from "./leader-mutants.ts";
import { OBSERVABILITY_MUTANTS } from "./observability-mutants.ts";
import { RECALL_MUTANTS } from "./recall-mutants.ts";
import { REDIS_MUTANTS } from "./redis-mutants.ts";
import { SQL_MUTANTS } from "./sql-mutants.ts";
import { STORAGE_MUTANTS } from "./storage-mutants.ts";
import { SUCCESSORS_MUTANTS } from "./successors-mutants.ts";
import { WRAPPING_MUTANTS } from "./wrapping-mutants.ts";
import { ZOOKEEPER_MUTANTS } from "./zookeeper-mutants.ts";

export interface Mutant {
  /** The fault, as a reader of the design would say it. */
  readonly name: string;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  /** Tests to try if the simulator does not notice; default: those of core. */
  readonly tests?: string;
}

/** The text of its file with the fault. @throws if what it changes does not stand there exactly once */
export function applyMutant({ name, file, find, replace }: Mutant): string {
  const text = readFileSync(file, "utf8");
  const matches = text.split(find).length - 1;
  if (matches !== 1) throw new Error(`"${name}": its text is found ${matches} times in ${file}`);
  return text.replace(find, () => replace);
}

export const MUTANTS: readonly Mutant[] = [
  ...CRON_MUTANTS,
  ...DATA_LOSS_MUTANTS,
  ...FENCE_MUTANTS,
  ...LEADER_MUTANTS,
  ...HTTP_MUTANTS,

  ...OBSERVABILITY_MUTANTS,
  ...RECALL_MUTANTS,
  ...REDIS_MUTANTS,
  ...SQL_MUTANTS,
  ...STORAGE_MUTANTS,
  ...SUCCESSORS_MUTANTS,
  ...WRAPPING_MUTANTS,
  ...ZOOKEEPER_MUTANTS,
  // --- test locks, and what only fake timers show
  {
    name: "work for the end of a turn that fake timers keep for ever",
    file: "src/util/microtask.ts",
    find: "void RESOLVED.then(run)",
    replace: "queueMicrotask(run)",
    tests: "test/unit/testing/fake-timers.test.ts",
  },
  {
    name: "a failed release that is not repeated when the store is connected again",
    file: "src/client/engine.ts",
    find: "    this.#releaseQueue.retryNow();\n",
    replace: "",
    tests: "test/unit/client/release-queue.test.ts",
  },
  // --- web locks
  {
    name: "a steal that does not overtake the waiters of its process",
    file: "src/web-locks/web-locks.ts",
    find: "    for (const overtake of this.#waiting.get(name) ?? []) overtake();\n",
    replace: "",
    tests: "test/unit/web-locks/web-locks.test.ts",
  },
  {
    name: "a steal that leaves the lock to a request of its process that is on its way",
    file: "src/web-locks/web-locks.ts",
    find: '      trying.abort(createLossError(name, "stolen"));\n',
    replace: "",
    tests: "test/unit/web-locks/web-locks.test.ts",
  },
  {
    name: "a steal that leaves the lock to holders in other clients",
    file: "src/web-locks/web-locks.ts",
    find: '      await this.#locks.revoke(name, answer.token, { now: true, reason: "stolen" });\n',
    replace: "",
    tests: "test/unit/web-locks/web-locks.test.ts",
  },
  {
    name: "a lost web lock that is released while its callback still works",
    file: "src/web-locks/held-lock.ts",
    find: "    if (!signal.aborted) this.#controller",
    replace: "    void this.#lock.release();\n    if (!signal.aborted) this.#controller",
    tests: "test/unit/web-locks/web-locks.test.ts",
  },
  {
    name: "a request without hand-off that shares the claim of others",
    file: "src/client/client.ts",
    find: "hasOwnClaim === true || ",
    replace: "",
    tests: "test/unit/web-locks/web-locks.test.ts",
  },
  // --- time and belief
  {
    name: "a detached lease longer than its claim's",
    file: "src/lock-table/lease-expiry.ts",
    find: "    if (until >= record.expiresAt) return;\n",
    replace: "",
    tests: "test/unit/lock-table/table-revoke.test.ts",
  },
  {
    name: "a lock believed after a shorter lease may have been set",
    file: "src/client/transfer.ts",
    find: 'if (newTtlMs !== undefined) lock.transferOut(lockLostError("unknown", keys));',
    replace: "",
    tests: "test/unit/client/transfer.test.ts",
  },
  {
    name: "a detached lease shortened without moving its end in the schedule",
    file: "src/lock-table/lease-expiry.ts",
    find: "    this.remove(record);\n    record.expiresAt = until;\n    this.add(record);",
    replace: "    record.expiresAt = until;",
    tests: "test/unit/lock-table/table-revoke.test.ts",
  },
  {
    name: "the deadline counted from the answer",
    file: "src/client/engine.ts",
    find: 'this.#apply(activeClaim, { type: "answered", call, sentAt, answer }, now);',
    replace: 'this.#apply(activeClaim, { type: "answered", call, sentAt: now, answer }, now);',
  },
  {
    name: "a look that extends belief",
    file: "src/claim/lease-deadline.ts",
    find: "return sentAt + BELIEVED_SHARE * Math.min(remainingMs, ttlMs);",
    replace: "return sentAt + 0.9 * ttlMs;",
  },
  {
    name: "a lease believed to its last moment",
    file: "src/claim/lease-deadline.ts",
    find: "return sentAt + BELIEVED_SHARE * Math.min(remainingMs, ttlMs);",
    replace: "return sentAt + 1.05 * Math.min(remainingMs, ttlMs);",
  },
  {
    name: "a push that lengthens the lease",
    file: "src/claim/machine.ts",
    find: "return grantClaim(state.callState, answer, state.deadline, dueAt, false, now, settings);",
    replace: "return grantClaim(state.callState, answer, now + 0.9 * settings.ttlMs, dueAt, false, now, settings);",
  },
  {
    name: "a grant whose lease is over when it is answered",
    file: "src/claim/machine.ts",
    find: "if (now >= deadline) return endClaim({ ...state, callState }, RELEASE_AND_EXPIRE);",
    replace: "",
  },
  {
    name: "a taken up lock confirmed by an answer whose lease is over",
    file: "src/claim/machine.ts",
    find: "if (now >= deadline) return requestRenewal(",
    replace: "if (now < 0) return requestRenewal(",
  },
  {
    name: "a first answer from before a sleep that counts as if all was granted that was asked for",
    file: "src/claim/lease-deadline.ts",
    find: "isFirst ? state.deadline - BELIEVED_SHARE * Math.max(settings.ttlMs - remainingMs, 0) : state.deadline",
    replace: "state.deadline",
  },
  {
    name: "a grant believed before the clocks were looked at",
    file: "src/client/engine.ts",
    find: 'if (answer.state === "held") this.observe(now);\n    this.#storeMonitor.recordContact(',
    replace: "this.#storeMonitor.recordContact(",
    tests: "test/unit/client/client.test.ts",
  },
  {
    name: "a query that reports a loss",
    file: "src/client/local-hold.ts",
    find: "return this.isOpen && this.lostReason === null && this.activeClaim.isHeld(now);",
    replace: "return this.isOpen && this.lostReason === null && this.activeClaim.isHeld(this.observe());",
    tests: "test/unit/client/local-queue.test.ts",
  },
  {
    name: "throwIfLost() that answers without reading the clocks",
    file: "src/client/lock.ts",
    find: "if (!localHold.isHeld(localHold.observe())) throw",
    replace: "if (!localHold.isHeld(localHold.grantedAt)) throw",
    tests: "test/unit/client/local-queue.test.ts",
  },
  {
    name: "a request that does not wait is busy while the first call of another one is under way",
    file: "src/client/local-queue.ts",
    find: "if (!isAsking(activeClaim)) this.#rejectBusy(waiter, activeClaim);",
    replace: "this.#rejectBusy(waiter, activeClaim);",
    tests: "test/unit/client/unanswered-tries.test.ts",
  },
  {
    name: "a release that does not read the clocks",
    file: "src/client/local-queue.ts",
    find: "if (localHold === this.#localHold) engine.observe(now, localHold.activeClaim);",
    replace: "",
    tests: "test/unit/client/local-queue.test.ts",
  },
  {
    name: "several keys taken up as one lock although one of them is lost again",
    file: "src/client/transfer.ts",
    find: "if (lostHold !== undefined) {",
    replace: "if (localHolds.length === 0 && lostHold !== undefined) {",
    tests: "test/unit/client/client.test.ts",
  },
  {
    name: "several keys given as one lock although one of them is lost again",
    file: "src/client/client.ts",
    find: "localHolds.every((localHold) => localHold.isHeld(localHold.observe()))",
    replace: "localHolds.length > 0",
    tests: "test/unit/client/client.test.ts",
  },
  {
    name: "a sleep of the machine that goes unnoticed",
    file: "src/claim/machine.ts",
    find: "const deadline = state.deadline - byMs;",
    replace: "const deadline = state.deadline;",
  },
  {
    name: "an answer from before a sleep that takes the doubt away",
    file: "src/claim/machine.ts",
    find: 'event.call <= state.callState.lastCallBeforeSuspend && answer.state !== "none"',
    replace: 'event.call < 0 && answer.state !== "none"',
  },
  {
    name: "a sleep that the wall clock hides",
    file: "src/util/suspend-detector.ts",
    find: "const UPTIME_INTERVAL_MS = 10;",
    replace: "const UPTIME_INTERVAL_MS = 1e9;",
    tests: "test/unit/client/engine.test.ts",
  },
  {
    name: "a place whose deadline is put off",
    file: "src/claim/machine.ts",
    find: "if (!settings.survivesSilence || state.callState.failures > 0) return",
    replace: "if (state.callState.failures > 0) return",
  },
  {
    name: '"none" taken for a hiccup',
    file: "src/claim/machine.ts",
    find: 'return loseClaim(settled, answer.state === "none" ? (answer.reason ?? "unknown") : "unknown", now, settings);',
    replace: "return { state: settled, effects: NO_EFFECTS };",
  },
  // --- a store that grants nothing new for a while
  {
    name: "a key that nobody has told of yet is called busy while the server recovers",
    file: "src/server/local/local-backend.ts",
    find: "this.isRecovering && !claim.wait && this.table.fitsBesideHolders(claim)",
    replace: "this.isRecovering && claim.wait && this.table.fitsBesideHolders(claim)",
    tests: "test/integration/server/recovery-answers.test.ts",
  },
  {
    name: "a key that is known to be held is called unknown while the server recovers",
    file: "src/server/local/local-backend.ts",
    find: "this.isRecovering && !claim.wait && this.table.fitsBesideHolders(claim)",
    replace: "this.isRecovering && !claim.wait",
    tests: "test/integration/server/recovery-answers.test.ts",
  },
  {
    name: "tryAcquire() takes a pause of the store for busy",
    file: "src/client/local-queue.ts",
    find: "if (pause === undefined) return this.#timeOutWaiter(waiter, 0);",
    replace: "if (pause === undefined || waiter.isTry) return this.#timeOutWaiter(waiter, 0);",
    tests: "test/conformance/server-unix.test.ts",
  },
  {
    name: "a majority that takes pauses of its members for busy",
    file: "src/drivers/quorum/tally.ts",
    find: "if (missingCount <= 0 || this.#busyCount > this.#minority) return undefined;",
    replace: "if (missingCount <= 0 || this.#busyCount >= 0) return undefined;",
    tests: "test/conformance/paused-stores.test.ts",
  },
  {
    name: "a majority that takes busy members for a pause",
    file: "src/drivers/quorum/tally.ts",
    find: "if (missingCount <= 0 || this.#busyCount > this.#minority) return undefined;",
    replace: "if (missingCount <= 0) return undefined;",
    tests: "test/conformance/paused-stores.test.ts",
  },
  {
    name: "a majority that tells a pause before those who could call the key busy have answered",
    file: "src/drivers/quorum/tally.ts",
    find: "return this.#busyCount + unanswered > this.#minority;",
    replace: "return this.#busyCount + unanswered < 0;",
    tests: "test/conformance/paused-stores.test.ts",
  },
  {
    name: "a majority that waits, beside a pause, for answers that cannot make the key busy",
    file: "src/drivers/quorum/tally.ts",
    find: "return this.#busyCount + unanswered > this.#minority;",
    replace: "return unanswered > 0;",
    tests: "test/unit/drivers/quorum/tally.test.ts",
  },
  {
    name: "a majority that waits, beside a pause, for a member that has failed",
    file: "src/drivers/quorum/tally.ts",
    find: "- this.#notAskedCount - this.errors.length;",
    replace: "- this.#notAskedCount;",
    tests: "test/unit/drivers/quorum/tally.test.ts",
  },
  // --- asking and leaving
  {
    name: "a recheck dropped while a call is under way",
    file: "src/claim/state.ts",
    find: "return { ...callState, callAgain: true };",
    replace: "return callState;",
  },
  {
    name: "no tombstone after an unanswered claim",
    file: "src/lock-table/table.ts",
    find: "if (unanswered !== undefined) this.addTombstone(",
    replace: 'if (unanswered !== undefined && unanswered === "session") this.addTombstone(',
  },
  {
    name: "an unanswered claim that the client forgets",
    file: "src/claim/state.ts",
    find: "const hasUnansweredClaim = callState.hasUnansweredClaim || callState.isClaimCall;",
    replace: "const hasUnansweredClaim = false;",
  },
  {
    name: 'a repeated release\'s "was not there" believed',
    file: "src/client/release-queue.ts",
    find: "release.onReleased(release.attempts === 1 || existed === true ? existed : null);",
    replace: "release.onReleased(existed);",
  },
  {
    name: "a release beside another that is not counted",
    file: "src/client/release-queue.ts",
    find: "if (pendingRelease !== null) pendingRelease.attempts++;",
    replace: "",
  },
  {
    name: "a release that is sent once and never again",
    file: "src/client/release-queue.ts",
    find: "if (this.#isStopped || (now >= pending.forgottenAt",
    replace: "if (this.#isStopped || (now >= 0",
  },
  {
    name: "release before the body has ended",
    file: "src/claim/machine.ts",
    find: 'return {\n    state: { status: "lost", reason, forgottenAt: now + settings.ttlMs, hasUnansweredClaim },\n    effects: ["lose"],\n  };',
    replace:
      'return { state: { status: "lost", reason, forgottenAt: now + settings.ttlMs, hasUnansweredClaim }, effects: ["lose", "release"] };',
  },
  {
    name: "a late answer that releases what was detached",
    file: "src/client/engine.ts",
    find: "if (activeClaim.isForgotten) return;",
    replace: "",
  },
  {
    name: "a claim forgotten while its release is repeated",
    file: "src/client/release-queue.ts",
    find: "const remembered = this.#dropForgotten(releases, now);",
    replace:
      "for (const { source } of releases) source.endCall(); const remembered = this.#dropForgotten(releases, now);",
  },
  {
    name: "a claim forgotten while a call for it is in flight",
    file: "src/client/engine.ts",
    find: "if (--this.openCalls === 0 &&",
    replace: "if (--this.openCalls >= 0 &&",
  },
  {
    name: "a claim that is never forgotten",
    file: "src/client/engine.ts",
    find: "this.driver.forget?.(claim);",
    replace: "return;",
  },
  {
    name: "an aborted request that leaves its claim behind",
    file: "src/client/local-queue.ts",
    find: "if (activeClaim !== null) this.context.engine.release(activeClaim);",
    replace:
      'if (activeClaim !== null && activeClaim.state.status === "asking") this.context.engine.release(activeClaim);',
  },
  {
    name: "a wait that ends early",
    file: "src/client/waiter.ts",
    find: "this.startedAt + waitMs",
    replace: "this.startedAt + waitMs * 0.99",
  },
  {
    name: "a wait that is never ended",
    file: "src/client/waiter.ts",
    find: "if (waitMs > 0 && waitMs < Number.POSITIVE_INFINITY)",
    replace: "if (waitMs > 100 && waitMs < Number.POSITIVE_INFINITY)",
  },
  // --- lines and tokens
  {
    name: "token runs handed on beside shared holds",
    file: "src/client/client.ts",
    find: "const canShare = isExclusive(target.locks);",
    replace: "const canShare = true;",
  },
  {
    name: "a run handed on after it is spent",
    file: "src/client/handoff-budget.ts",
    find: "if (canContinue && this.#tokensLeft > 0)",
    replace: "if (canContinue)",
  },
  {
    name: "local holders with the same token",
    file: "src/client/handoff-budget.ts",
    find: "return this.#nextToken++;",
    replace: "return this.#nextToken;",
  },
  {
    name: "`last` forgotten early",
    file: "src/lock-table/table.ts",
    find: "if (queue.lastToken < this.tokenIssuer.clock) {",
    replace: "if (queue.lastToken < Number.POSITIVE_INFINITY) {",
  },
  {
    name: "a run of which only the first token is remembered",
    file: "src/lock-table/token-issuer.ts",
    find: "queue.lastToken = token + claim.tokenCount - 1;",
    replace: "queue.lastToken = token;",
  },
  {
    name: "all keys of a claim placed at once",
    file: "src/lock-table/table.ts",
    find: "if (this.#isPaused || !queue.tryAdmit(entry)) return this.#recallIfFirst(entry);",
    replace: "if (this.#isPaused || !queue.tryAdmit(entry)) continue;",
  },
  {
    name: "a waiter's turn taken by one who was led on to its line",
    file: "src/lock-table/table.ts",
    find: "if (this.#isPaused || !queue.tryAdmit(entry)) return this.#recallIfFirst(entry);",
    replace: "if (this.#isPaused || queue.admitNext() !== entry) return;",
  },
  {
    name: "a claim that lost one of its lines kept",
    file: "src/lock-table/table.ts",
    find: "for (let conflict = queue.findConflict(); conflict !== null; conflict = queue.findConflict())\n        this.#expireConflict(conflict.record);",
    replace:
      "for (let conflict = queue.findConflict(); conflict !== null; conflict = queue.findConflict()) queue.remove(conflict);",
  },
  {
    name: "a reader that overtakes a waiting writer",
    file: "src/lock-table/key-queue.ts",
    find: "return this.lastAdmitted === this.entries.last && fits(this.usedPermits, spec);",
    replace: "return fits(this.usedPermits, spec);",
  },
  {
    name: "one permit too many",
    file: "src/lock-table/admission.ts",
    find: "return used + request.permits <= request.limit;",
    replace: "return used + request.permits <= request.limit + 1;",
  },
  {
    name: "a revoked place that is given away at once",
    file: "src/lock-table/table.ts",
    find: "if (isRemoval) this.#removeAndAdmit(record);",
    replace: "if (isRemoval || true) this.#removeAndAdmit(record);",
  },
  {
    name: "a lease that ends early at the store",
    file: "src/lock-table/lease-expiry.ts",
    find: "if (record.expiresAt <= now) return record;",
    replace: "if (record.expiresAt <= now + 100) return record;",
  },
  // --- the server's restart
  {
    name: "the clean table used twice",
    file: "src/server/local/startup.ts",
    find: "await storage.beginRun({ state, journal",
    replace: "await storage.beginRun({ state: (await storage.load()).state ?? state, journal",
  },
  {
    name: "the longest lease written late",
    file: "src/server/storage/write-ahead.ts",
    find: "if (highestToken > durableLog.ceiling || lease > durableLog.longestLeaseMs) {",
    replace: "if (highestToken > durableLog.ceiling) {",
    tests: "test/integration/server/crash-recovery.test.ts",
  },
  {
    name: "a reclaimed hold behind a waiter",
    file: "src/lock-table/table.ts",
    find: "queue.insertAdmitted(entry);",
    replace: "entry.queue.enqueue(entry);",
  },
  {
    name: "tokens not above the old bound",
    file: "src/server/local/local-backend.ts",
    find: "Math.max(findCeilingAtStart(recoveryPlan), micros)",
    replace: "micros",
  },
  {
    name: "grants while a restarted server reclaims",
    file: "src/server/local/local-backend.ts",
    find: "    this.table.pauseGrants();\n  }\n\n  /** Restores a claim loaded from disk.",
    replace: "  }\n\n  /** Restores a claim loaded from disk.",
  },
  {
    name: "clients forgotten by a second crash",
    file: "src/server/local/startup.ts",
    find: "strangers: recovery.expectedSessions === null",
    replace: "strangers: false",
  },
  {
    name: "a session of the journal that counts as noted",
    file: "src/server/local/startup.ts",
    find: "createSession({ id, ...unknownClient })",
    replace: "Object.assign(createSession({ id, ...unknownClient }), { isPersisted: true })",
  },
  {
    name: "a renewal answered before its claim's own write",
    file: "src/server/storage/write-ahead.ts",
    find: "return this.#writes.get(id) ?? null;",
    replace: "return null;",
    tests: "test/integration/server/write-ahead.test.ts",
  },
  {
    name: "a reply that counts although its transport has ended",
    file: "src/drivers/server/connection.ts",
    find: "    if (attempt !== this.#attempt) return;\n    try {",
    replace: "    try {",
    tests: "test/unit/drivers/server/connection.test.ts",
  },
  {
    name: "a revoked hold that a new start does not hear of",
    file: "src/drivers/server/driver.ts",
    find: 'if (lastAnswer?.state === "held" && (reason === "revoked" || reason === "maxHold")) return;',
    replace: "if (reason === undefined && lastAnswer === undefined) return;",
  },
  {
    name: "a sleep that a new start does not hear of",
    file: "src/drivers/server/reclaim.ts",
    find: "return driftMs > MAX_DRIFT_MS ? driftMs : 0;",
    replace: "return driftMs > MAX_DRIFT_MS ? 0 : 0;",
  },
  {
    name: "a new start of the server taken for the old one",
    file: "src/drivers/server/driver.ts",
    find: "if (this.#reclaimedRunId === hello.runId) return this.#events?.reconnected();",
    replace: "if (this.#reclaimedRunId !== null) return this.#events?.reconnected();",
  },
  {
    name: "a reclaim that a broken connection interrupted taken for answered",
    file: "src/drivers/server/driver.ts",
    find: "    this.#reclaimedRunId = null;\n",
    replace: "    this.#reclaimedRunId = hello.runId;\n",
    tests: "test/integration/server/crash-recovery.test.ts",
  },
  {
    name: "waiters lined up as they come back, not as they had arrived",
    file: "src/server/local/recovery-window.ts",
    find: "table.claim({ ...claim, wait: true }, session, now, micros, lastState.arrival, account);",
    replace: "table.claim({ ...claim, wait: true }, session, now, micros);",
    tests: "test/integration/server/crash-recovery.test.ts",
  },
  {
    name: "a session's claim given up although its session lives",
    file: "src/client/release-queue.ts",
    find: 'now >= pending.forgottenAt && pending.claim.ttlMs !== "session"',
    replace: "now >= pending.forgottenAt",
  },
  {
    name: "a push of an earlier start believed",
    file: "src/protocol/frames.ts",
    find: "if (frames[0] !== runId) throw",
    replace: "if (frames[0] === undefined) throw",
    tests: "test/integration/server/stale-run-id.test.ts",
  },
  // --- the server under abuse
  {
    name: "claims that are told of after a restart bounded by nothing",
    file: "src/server/local/recovery-window.ts",
    find: '  if (!rules.hasRoom(claim, lastState.state === "held")) return;\n',
    replace: "",
    tests: "test/integration/server/reclaim-limits.test.ts",
  },
  {
    name: "claims that are told of in one frame counted behind it",
    file: "src/server/local/recovery-window.ts",
    find: "  if (record !== undefined) rules.assignOwner(record);\n",
    replace: "  if (record === null) rules.assignOwner(record);\n",
    tests: "test/integration/server/reclaim-limits.test.ts",
  },
  {
    name: "waiters that keep a holder from coming back",
    file: "src/server/local/claim-quotas.ts",
    find: "isHeld ? 2 * waitersPerKey : waitersPerKey",
    replace: "waitersPerKey",
    tests: "test/integration/server/reclaim-limits.test.ts",
  },
  {
    name: "holders of a key that count nowhere if they did not wait",
    file: "src/server/local/claim-quotas.ts",
    find: "return table.canAdmitNow(claim) ? this.#exceededQueue(table, claim, this.#limits.waitersPerKey) : null;",
    replace: "return null;",
    tests: "test/integration/server/claim-limits.test.ts",
  },
  {
    name: "a line that is answered in one go",
    file: "src/server/connection/request-handler.ts",
    find: "if (this.isBusy && this.#service.clock.now() >= deadline) return;",
    replace: "if (deadline < 0) return;",
    tests: "test/integration/server/fair-scheduling.test.ts",
  },
  {
    name: "a large frame that is answered in one go",
    file: "src/server/connection/request-handler.ts",
    find: "if (items.length <= size || !this.#service.backend.isInProcess)",
    replace: "if (items.length <= 5_000 || size < 0)",
    tests: "test/integration/server/fair-scheduling.test.ts",
  },
  {
    name: "what comes behind a line that is not done answered before it",
    file: "src/server/connection/connection.ts",
    find: "this.#pendingLines = [...this.#pendingLines, ...lines];\n      return;",
    replace: "this.#pendingLines = [...lines, ...this.#pendingLines];\n      return;",
    tests: "test/integration/server/fair-scheduling.test.ts",
  },
  {
    name: "a session that has told all before the last of it stands",
    file: "src/server/connection/request-handler.ts",
    find: "reclaim(part, isLast && isLastFrame);",
    replace: "reclaim(part, isLastFrame);",
    tests: "test/integration/server/fair-scheduling.test.ts",
  },
  {
    name: "a holder that is granted later not found by its token",
    file: "src/lock-table/key-queue.ts",
    find: "this.#holders?.add(record);",
    replace: "this.#holders?.remove(record);",
  },
  {
    name: "a holder found by its token that has gone",
    file: "src/lock-table/key-queue.ts",
    find: "      this.#holders?.remove(entry.record);\n",
    replace: "",
  },
  {
    name: "a stranger of whichever address given up for a newcomer",
    file: "src/server/connection/connection-limiter.ts",
    find: "if (unauthenticated.size < maxCount || (unauthenticated.size === maxCount && number >= firstNumber)) continue;",
    replace: "if (firstNumber > 0 && number >= firstNumber) continue;",
    tests: "test/integration/server/unauthenticated-connections.test.ts",
  },
  {
    name: "the newest of the strangers given up, who may be about to say hello",
    file: "src/server/connection/connection-limiter.ts",
    find: "return this.#unauthenticatedByNetwork.get(network)?.keys().next().value ?? null;",
    replace: "return [...(this.#unauthenticatedByNetwork.get(network)?.keys() ?? [])].at(-1) ?? null;",
    tests: "test/integration/server/unauthenticated-connections.test.ts",
  },
  {
    name: "no room for a newcomer where strangers are many",
    file: "src/server/service.ts",
    find: "if (refusal.evictable !== null && !this.#isDraining)",
    replace: "if (refusal.evictable !== null && this.#isDraining)",
    tests: "test/integration/server/unauthenticated-connections.test.ts",
  },
  {
    name: "claims from before a restart held to bounds that are narrower now",
    file: "src/server/local/claim-quotas.ts",
    find: "this.#formerLimits = widestLimits(limits, formerLimits);",
    replace: "this.#formerLimits = formerLimits === limits ? formerLimits : limits;",
    tests: "test/integration/server/reclaim-limits.test.ts",
  },
  {
    name: "a claim of many keys counted as one",
    file: "src/server/local/claim-quotas.ts",
    find: "if (this.#keyCount + locks.length > claims)",
    replace: "if (this.#keysByAccount.size + locks.length > claims)",
    tests: "test/integration/server/claim-limits.test.ts test/integration/server/reclaim-limits.test.ts",
  },
  // --- runs that outlive their wrappers and their server
  {
    name: "a run written down when its command works already",
    file: "src/cli/commands/run/run-file.ts",
    find: "    renameSync(temporaryPath, path);\n",
    replace: "    setTimeout(() => renameSync(temporaryPath, path), 100);\n",
    tests: "test/integration/cli/run-file.test.ts",
  },
  {
    name: "a command whose process id is not written down",
    file: "src/cli/commands/run/child.ts",
    find: '    runFile?.addProcess("command", pid);\n',
    replace: "",
    tests: "test/integration/cli/run-file.test.ts",
  },
  {
    name: "a command that does not inherit the lock of its run",
    file: "src/cli/commands/run/child.ts",
    find: "...(runFile === null ? [] : [runFile.descriptor])",
    replace: "...(runFile === null ? [] : [])",
    tests: "test/integration/cli/run-file.test.ts",
  },
  {
    name: "a server that does not restore what runs hold",
    file: "src/server/runs/run-recovery.ts",
    find: "if (backend.findClaim(saved.claim.id) === undefined)",
    replace: "if (backend.findClaim(saved.claim.id) !== undefined)",
    tests: "test/integration/server/command-runs.test.ts",
  },
  {
    name: "a run whose death the server does not look for",
    file: "src/server/session/session-registry.ts",
    find: "const run = session.isLocal ? this.#commandRuns.find(session.id) : null;",
    replace: "const run = null as CommandRun | null;",
    tests: "test/integration/server/command-runs.test.ts",
  },
  {
    name: "a run that began while no server was there, overlooked",
    file: "src/server/session/session-registry.ts",
    find: "        this.#listener.onRunFound?.(session, run);\n        return",
    replace: "        return",
    tests: "test/integration/server/command-runs.test.ts",
  },
  {
    name: "a stopped wrapper given up like a stopped program",
    file: "src/server/session/session-registry.ts",
    find: 'if (isConnected || status === "works" || status === "held") return now + nextProbeMs;',
    replace: 'if (isConnected || status === "works") return now + nextProbeMs;',
    tests: "test/integration/server/command-runs.test.ts",
  },
  {
    name: "all keys that wait for a run of which all is known",
    file: "src/server/runs/run-recovery.ts",
    find: "filter((id) => !knownSessions.has(id))",
    replace: "filter((id) => knownSessions.has(id) || id !== undefined)",
    tests: "test/integration/server/command-runs.test.ts",
  },
  {
    name: "a damaged file of a run believed to name nothing",
    file: "src/server/runs/run-files.ts",
    find: "      hasUnreadable = true;\n",
    replace: "",
    tests: "test/integration/server/run-files.test.ts",
  },
  {
    name: "the lease of a run without its wrapper left to end",
    file: "src/server/session/session-registry.ts",
    find: 'if (isConnected || status === "works") renewLeases(this.#backend, session, now);',
    replace: 'if (isConnected && status !== "works") renewLeases(this.#backend, session, now);',
    tests: "test/integration/server/command-runs.test.ts",
  },
  {
    name: "a process taken for another that was given its id",
    file: "src/util/process-info.ts",
    find: 'if (fields[START_FIELD - 3] !== pidStart) return "gone";',
    replace: "",
    tests: "test/integration/server/run-files.test.ts",
  },
  {
    name: "a process of another namespace taken for one that has ended",
    file: "src/util/process-info.ts",
    find: "if (found !== undefined) return { pid: found, start };",
    replace: "",
    tests: "test/integration/server/run-files.test.ts",
  },
  {
    name: "a run given up in the first moment in which it is unknown",
    file: "src/server/session/session-registry.ts",
    find: 'if (status === "works" || status === "held") running.since = now;',
    replace: "",
    tests: "test/integration/server/command-runs.test.ts",
  },
  {
    name: "a run without living processes over, whoever has its lock",
    file: "src/server/runs/run-files.ts",
    find: "record?.locked === false ?",
    replace: "record !== null ?",
    tests: "test/integration/server/run-files.test.ts",
  },
  {
    name: "a run without its lock over, whatever process lives",
    file: "src/server/runs/run-files.ts",
    find: 'return aliveRoles.includes("command") || (aliveRoles',
    replace: "return (aliveRoles",
    tests: "test/integration/server/run-files.test.ts",
  },
  {
    name: "a run that its watchdog has ended taken for one that works",
    file: "src/server/runs/run-files.ts",
    find: "  if (isEnded) return false;\n",
    replace: "",
    tests: "test/integration/server/run-files.test.ts",
  },
  {
    name: "claims of a run that its watchdog has ended restored",
    file: "src/server/runs/run-files.ts",
    find: "record === null || (record.isEnded && this.remainingHoldMs() === 0) ? []",
    replace: "record === null ? []",
    tests: "test/integration/server/run-files.test.ts",
  },
  {
    name: "a watchdog without a command taken for work, although its wrapper lives",
    file: "src/server/runs/run-files.ts",
    find: ' || !aliveRoles.includes("wrapper");',
    replace: ' || aliveRoles.includes("wrapper");',
    tests: "test/integration/server/run-files.test.ts",
  },
  {
    name: "a watchdog that does not say that it has ended its run",
    file: "src/cli/commands/run/watchdog.sh",
    find: "    lease_ended=yes\n",
    replace: "",
    tests: "test/integration/cli/stopped-wrapper.test.ts",
  },
  {
    name: "a watchdog that replaces another and is not told when the lease ends",
    file: "src/cli/commands/run/watchdog.ts",
    find: "if (leaseEndsAt !== null) next.send(",
    replace: "if (leaseEndsAt === 0) next.send(",
    tests: "test/integration/cli/stopped-wrapper.test.ts",
  },
  {
    name: "a client whose connection ends before it has told a new start anything taken for dead",
    file: "src/server/session/session-registry.ts",
    find: "session.connect(connection, isReturning(session));",
    replace: "session.connect(connection);",
    tests: "test/integration/server/crash-recovery.test.ts",
  },
  {
    name: "a client that has told a new start what it had never taken for dead",
    file: "src/server/connection/request-handler.ts",
    find: "        if (isAll) session.markReclaimed();\n",
    replace: "",
    tests: "test/integration/server/crash-recovery.test.ts",
  },
  {
    name: "a client whose reclaim has failed taken for one that has told all",
    file: "src/server/connection/request-handler.ts",
    find: "      const answers = calls.reclaim(session, part, isAll);\n",
    replace: "      if (isAll) session.markReclaimed();\n      const answers = calls.reclaim(session, part, isAll);\n",
    tests: "test/integration/server/crash-recovery.test.ts",
  },
  {
    name: "a run that began while no server was there, overlooked when its wrapper dies between hello and reclaim",
    file: "src/server/session/session-registry.ts",
    find: "if (wasReturning) this.#listener.onRunFound?.(session, run);",
    replace: "",
    tests: "test/integration/server/command-runs.test.ts",
  },
  {
    name: "what is to be held for longer ends with its run",
    file: "src/server/session/session-registry.ts",
    find: "if (ids.length > 0) await",
    replace: "if (ids.length > 1_000) await",
    tests: "test/integration/server/command-runs.test.ts",
  },
  {
    name: "what is to be held for longer held for the whole lease",
    file: "src/server/session/session-registry.ts",
    find: "detach(session, ids, run.remainingHoldMs());",
    replace: "detach(session, ids);",
    tests: "test/integration/server/command-runs.test.ts",
  },
  {
    name: "the file of a run removed before what it left held is written",
    file: "src/server/session/session-registry.ts",
    find: 'running.detachment = "pending";',
    replace: 'running.detachment = "pending";\n    running.run.remove();',
    tests: "test/integration/server/command-runs.test.ts",
  },
  {
    name: "a session ended before what its run left held is written: a failed write frees the lock",
    file: "src/server/session/session-registry.ts",
    find: 'if (running.detachment === "pending") return false;',
    replace: 'if (running.detachment === "pending") return true;',
    tests: "test/integration/server/command-runs.test.ts",
  },
  {
    name: "a failed write of what a run left held taken for done",
    file: "src/server/session/session-registry.ts",
    find: 'running.detachment = "none";',
    replace: 'running.detachment = "done";',
    tests: "test/integration/server/command-runs.test.ts",
  },
  {
    name: "the timer of a watchdog that was replaced left to end the command",
    file: "src/cli/commands/run/watchdog.ts",
    find: "    void previous.kill();\n",
    replace: "",
    tests: "test/integration/cli/stopped-wrapper.test.ts",
  },
  {
    name: "the timer of a watchdog that has died left to hold the lock and to end the command",
    file: "src/cli/commands/run/watchdog.ts",
    find: '    if (state === "running") killGroup(sh);\n',
    replace: "",
    tests: "test/integration/cli/stopped-wrapper.test.ts",
  },
  {
    name: "a run that is over, and is to be held for longer, forgotten at a start",
    file: "src/server/runs/run-files.ts",
    find: 'if (status === "over" && run.remainingHoldMs() === 0) {',
    replace: 'if (status === "over") {',
    tests: "test/integration/server/run-files.test.ts",
  },
  {
    name: "a command that nobody had time to name, overlooked",
    file: "src/server/runs/run-files.ts",
    find: "return this.#unnamedProcesses.length > 0;",
    replace: "return false;",
    tests: "test/integration/server/run-files.test.ts",
  },
];
