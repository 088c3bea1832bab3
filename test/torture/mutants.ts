/**
 * Faults put into the code on purpose that a torture must find: it cannot be trusted otherwise. Those of test/mutation that it can see,
 * and some of its own. Each violates an invariant: that a lock is slower, or that a process ends, does not count.
 */

import type { Invariant } from "../../src/torture/checker.ts";
import type { FaultName } from "../../src/torture/faults.ts";
import type { StoreName } from "../../src/torture/stores/stores.ts";
import type { Mutant } from "../mutation/mutants.ts";
import { MUTANTS } from "../mutation/mutants.ts";

export interface TortureMutant extends Omit<Mutant, "tests"> {
  /** Which store is started. */
  readonly store: StoreName;
  /** Few, so that it is found sooner. */
  readonly faults: readonly FaultName[];
  /** One of them must be violated. */
  readonly invariants: readonly Invariant[];
}

type Sight = Pick<TortureMutant, "store" | "faults" | "invariants">;

/** A mutant of test/mutation, by its name. */
function known(name: string, sight: Sight): TortureMutant {
  const mutant = MUTANTS.find((one) => one.name === name);
  if (mutant === undefined) throw new Error(`test/mutation has no mutant "${name}"`);
  const { file, find, replace } = mutant;
  return { name, file, find, replace, ...sight };
}

/** In the client: its belief, and what it tells its holders. */
const CLIENT: readonly TortureMutant[] = [
  {
    name: "a lease believed for half as long again",
    file: "src/claim/lease-shares.ts",
    find: "BELIEVED_SHARE = 0.9;",
    replace: "BELIEVED_SHARE = 1.5;",
    ...{ store: "redis", faults: ["pause", "partition"], invariants: ["exclusion"] },
  },
  known("the deadline counted from the answer", {
    ...{ store: "redis", faults: ["partition"], invariants: ["exclusion"] },
  }),
  {
    name: "a grant by a push that is believed for two leases",
    file: "src/claim/machine.ts",
    find: "return grantClaim(state, answer, dueAt, false, now, settings);",
    replace:
      "return grantClaim({ ...state, deadline: now + 2 * settings.ttlMs }, answer, dueAt, false, now, settings);",
    ...{ store: "server", faults: ["pause"], invariants: ["exclusion"] },
  },
  {
    name: "a lease that is measured by the wall clock",
    file: "src/util/clock.ts",
    find: "now: () => performance.now(),",
    replace: "now: () => Date.now() - performance.timeOrigin,",
    ...{ store: "redis", faults: ["clock"], invariants: ["exclusion", "progress"] },
  },
  {
    name: "a remaining time that is a second too long",
    file: "src/client/local-hold.ts",
    find: "return this.isHeld(now) ? this.activeClaim.remainingMs(now) : 0;",
    replace: "return this.isHeld(now) ? this.activeClaim.remainingMs(now) + 1_000 : 0;",
    ...{ store: "redis", faults: ["pause"], invariants: ["exclusion"] },
  },
  {
    name: "a loss that no holder is told",
    file: "src/claim/machine.ts",
    find: '    effects: ["lose"],',
    replace: "    effects: [],",
    ...{ store: "server", faults: ["store-pause"], invariants: ["notice"] },
  },
  known("two leaders at a time, by a lock that does not exclude", {
    ...{ store: "server", faults: ["block"], invariants: ["exclusion"] },
  }),
  {
    name: "a release of a lost lock that says that it was held",
    file: "src/client/local-queue.ts",
    find: "      engine.release(activeClaim);\n      return false;",
    replace: "      engine.release(activeClaim);\n      return true;",
    ...{ store: "redis", faults: ["pause"], invariants: ["release"] },
  },
  known("a leader that is not told at the deadline of its lease", {
    ...{ store: "server", faults: ["store-pause"], invariants: ["notice"] },
  }),
  known("local holders with the same token", { store: "server", faults: ["block"], invariants: ["tokens"] }),
];

/** In the lock table and the lock server. */
const SERVER: readonly TortureMutant[] = [
  known("one permit too many", { store: "server", faults: ["block"], invariants: ["exclusion"] }),
  {
    name: "permits of which only one counts, so that a writer enters beside readers",
    file: "src/lock-table/admission.ts",
    find: "return used + request.permits <= request.limit;",
    replace: "return used + 1 <= request.limit;",
    ...{ store: "server", faults: ["block"], invariants: ["exclusion"] },
  },
  {
    name: "several keys of which only the first is locked",
    file: "src/lock-table/table.ts",
    find: "while (record.entries.length < locks.length) {",
    replace: "while (record.entries.length < 1) {",
    ...{ store: "server", faults: ["block"], invariants: ["exclusion"] },
  },
  known("all keys of a claim placed at once", { store: "server", faults: ["block"], invariants: ["exclusion"] }),
  {
    name: "a lease that ends much too early at the store",
    file: "src/lock-table/lease-expiry.ts",
    find: "if (record.expiresAt <= now) return record;",
    replace: "if (record.expiresAt <= now + 1_000) return record;",
    ...{ store: "server", faults: ["pause"], invariants: ["exclusion"] },
  },
  {
    name: "tokens that are counted in memory only",
    file: "src/lock-table/token-issuer.ts",
    find: "return nextToken(lastToken, floor, this.#clock);",
    replace: "return nextToken(lastToken, floor, 0);",
    ...{ store: "server", faults: ["kill", "store-kill"], invariants: ["tokens"] },
  },
  {
    name: "a token that is not raised by a grant",
    file: "src/lock-table/token-issuer.ts",
    find: "    const token = this.next(claim.floor, lastToken);",
    replace: "    const token = lastToken || this.next(claim.floor, lastToken);",
    ...{ store: "server", faults: ["block"], invariants: ["tokens"] },
  },
  known("grants while a restarted server reclaims", {
    ...{ store: "server", faults: ["store-kill"], invariants: ["exclusion"] },
  }),
  {
    name: "a release after which no waiter is granted",
    file: "src/lock-table/table.ts",
    find: "    this.#removeRecord(record);\n    this.#admitWaiters(record);\n  }",
    replace: "    this.#removeRecord(record);\n  }",
    ...{ store: "server", faults: ["block"], invariants: ["progress"] },
  },
];

/** In the scripts of Redis. */
const REDIS: readonly TortureMutant[] = [
  {
    name: "on Redis, a release that does not look whose lock it is",
    file: "src/drivers/redis/lua/lib/contended.lua",
    find: "if sub(record, BODY_AT, BODY_AT + #first.id) ~= first.id .. ' ' then return leaveQueue(key, record, items) end",
    replace: "",
    ...{ store: "redis", faults: ["pause"], invariants: ["exclusion"] },
  },
  {
    name: "on Redis, a claim that does not look whether its key is free",
    file: "src/drivers/redis/lua/lib/free_key.lua",
    find: "if not read.err and not read[OF_KEY] and not read[OF_CLAIM]",
    replace: "if not read.err and not read[OF_CLAIM]",
    ...{ store: "redis", faults: ["block"], invariants: ["exclusion"] },
  },
  {
    name: "on Redis, one permit too many",
    file: "src/drivers/redis/lua/lib/queue.lua",
    find: "return queue.used + permits <= tonumber(limit)",
    replace: "return queue.used + permits <= tonumber(limit) + 1",
    ...{ store: "redis", faults: ["block"], invariants: ["exclusion"] },
  },
  {
    name: "on Redis, a token that is not raised at a hand-off",
    file: "src/drivers/redis/lua/lib/hand_on.lua",
    find: "local token = math.max(nowMicros, floor, (read[2] or 0) + 1, lastBeforeLoss + 1)",
    replace: "local _, _, token = unpackHead(HEAD, record)",
    ...{ store: "redis", faults: ["block"], invariants: ["tokens"] },
  },
  {
    name: "on Redis, a renewal of a quarter of the lease",
    file: "src/drivers/redis/lua/renew.lua",
    find: "packHead(HEAD, status, expires, token, createdAt, missedAt, enteredCount) .. sub(record, BODY_AT)",
    replace:
      "packHead(HEAD, status, expires - 0.75 * ttl, token, createdAt, missedAt, enteredCount) .. sub(record, BODY_AT)",
    ...{ store: "redis", faults: ["pause"], invariants: ["exclusion"] },
  },
  {
    name: "on Redis, a lease that never ends",
    file: "src/drivers/redis/lua/lib/queue.lua",
    find: "  if claim.expires <= nowMs then return end\n",
    replace: "",
    ...{ store: "redis", faults: ["kill", "pause"], invariants: ["progress", "remains"] },
  },
  {
    name: "on Redis, a release of a lock for which no claim waits that does not look whose it is",
    file: "src/drivers/redis/lua/lib/free_key.lua",
    find: "and match(record, IS_ORDINARY_LONE) and sub(record, BODY_AT, BODY_AT + #id) == id .. ' ' then",
    replace: "and match(record, IS_ORDINARY_LONE) then",
    ...{ store: "redis", faults: ["pause"], invariants: ["exclusion"] },
  },
  {
    name: "on Redis, a renewal that is answered and not written",
    file: "src/drivers/redis/lua/renew.lua",
    find: "          reply = try('HSET', hash, field, renewed)\n          if type(reply)",
    replace: "          if type(reply)",
    ...{ store: "redis", faults: ["block"], invariants: ["exclusion"] },
  },
  {
    name: "on Redis, several keys of which one that was waited for is not locked",
    file: "src/drivers/redis/lua/lib/admission.lua",
    find: "  addAdmitted(queue, claim, lock)\n  enterQueue(nextQueue, claim, nextLock)",
    replace: "  enterQueue(nextQueue, claim, nextLock)",
    ...{ store: "redis", faults: ["block"], invariants: ["exclusion"] },
  },
  {
    name: "on Redis, permits that a release gives back although they were not held",
    file: "src/drivers/redis/lua/lib/queue.lua",
    find: "    if call('ZREM', queue.admittedKey, entry) == 0 then return false end\n",
    replace: "    call('ZREM', queue.admittedKey, entry)\n",
    ...{ store: "redis", faults: ["pause"], invariants: ["exclusion"] },
  },
  {
    name: "on Redis, a renewal that leaves the lease of readers and permits as it is",
    file: "src/drivers/redis/lua/lib/renewal.lua",
    find: "      updateLease(place.queue, claim, place.lock)\n",
    replace: "",
    ...{ store: "redis", faults: ["block"], invariants: ["exclusion"] },
  },
];

const ETCD_QUEUE: TortureMutant = known("on etcd, a waiting claim that is granted when any entry before it is gone", {
  ...{ store: "etcd", faults: ["block"], invariants: ["exclusion"] },
});

/** In other stores. */
const OTHERS: readonly TortureMutant[] = [
  {
    name: "on PostgreSQL, permits that are not counted",
    file: "src/drivers/sql/postgres/sql/walk.sql",
    find: "used := used + c.permits;",
    replace: "used := used + 1;",
    ...{ store: "postgres", faults: ["block"], invariants: ["exclusion"] },
  },
  {
    name: "on PostgreSQL, a token that is not raised at a hand-off",
    file: "src/drivers/sql/postgres/sql/walk.sql",
    find: "v_token := greatest(v_highest_token + 1, c.floor, p_now);",
    replace: "v_token := v_highest_token;",
    ...{ store: "postgres", faults: ["block"], invariants: ["tokens"] },
  },
  {
    name: "on SQLite, a waiting claim that is granted beside others",
    file: "src/drivers/sql/sqlite/routines.ts",
    find: "if (stored.token === 0n && (graceEnds > 0 || !fits(usedPermits, stored))) {",
    replace: "if (stored.token === 0n && graceEnds > 0) {",
    ...{ store: "sqlite", faults: ["block"], invariants: ["exclusion"] },
  },
  {
    name: "on SQLite, a token that is not raised",
    file: "src/drivers/sql/sqlite/routines.ts",
    find: "const token = [lastToken + 1n, claim.floor, BigInt(now)]",
    replace: "const token = [lastToken, claim.floor, 1n]",
    ...{ store: "sqlite", faults: ["block"], invariants: ["tokens"] },
  },
  ETCD_QUEUE,
  {
    name: "on ZooKeeper, a node that is granted behind any one before it",
    file: "src/drivers/zookeeper/queue.ts",
    find: "if (ownIndex < countAdmitted(queue)) return",
    replace: "if (ownIndex <= countAdmitted(queue)) return",
    ...{ store: "zookeeper", faults: ["block"], invariants: ["exclusion"] },
  },
];

/** In what stores of several servers, wiped ones and disks without power need. */
const FAILURES: readonly TortureMutant[] = [
  {
    name: "behind Sentinels, a grant that does not wait for the replica",
    file: "src/drivers/redis/connection.ts",
    find: "      await this.#replicaAcks.waitForAcks(routingKey);\n",
    replace: "",
    ...{ store: "redis-sentinel", faults: ["store-fail-over", "store-pause"], invariants: ["exclusion", "tokens"] },
  },
  {
    name: "in a Cluster, one permit too many",
    file: "src/drivers/redis/lua/lib/queue.lua",
    find: "return queue.used + permits <= tonumber(limit)",
    replace: "return queue.used + permits <= tonumber(limit) + 1",
    ...{ store: "redis-cluster", faults: ["store-fail-over"], invariants: ["exclusion"] },
  },
  {
    name: "a majority of one of three",
    file: "src/drivers/quorum/quorum-claim.ts",
    find: "return (members >> 1) + 1;",
    replace: "return 1;",
    ...{ store: "redis-majority", faults: ["partition"], invariants: ["exclusion", "tokens"] },
  },
  {
    ...ETCD_QUEUE,
    name: "on etcd with three members, a waiting claim that is granted when any entry before it is gone",
    ...{ store: "etcd-3", faults: ["block", "store-fail-over"], invariants: ["exclusion"] },
  },
  {
    name: "on ZooKeeper with three members, a node that is granted behind any one before it",
    file: "src/drivers/zookeeper/queue.ts",
    find: "if (ownIndex < countAdmitted(queue)) return",
    replace: "if (ownIndex <= countAdmitted(queue)) return",
    ...{ store: "zookeeper-3", faults: ["store-kill"], invariants: ["exclusion"] },
  },
  {
    name: "on Redis, a loss of data that begins no grace period",
    file: "src/drivers/redis/lua/lib/grace.lua",
    find: "local startsGrace = not isSameRun or",
    replace: "local startsGrace =",
    ...{ store: "redis", faults: ["store-wipe"], invariants: ["exclusion"] },
  },
  known("grants while a restarted server reclaims", {
    ...{ store: "server-tcp", faults: ["power-loss", "pause"], invariants: ["exclusion"] },
  }),
];

export const TORTURE_MUTANTS: readonly TortureMutant[] = [...CLIENT, ...SERVER, ...REDIS, ...OTHERS, ...FAILURES];
