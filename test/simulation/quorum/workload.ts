/** Clients at work on a majority with faults, and the checker, which uses only the clients' own view. */

import assert from "node:assert/strict";
import { tableOf } from "../../../src/drivers/memory-store.ts";
// else loaded when first used, while simulated time goes on
import "../../../src/client/transfer.ts";
import "../../../src/client/admin.ts";
import { Client } from "../../../src/client/client.ts";
import type { Lock, LockHandle } from "../../../src/client/lock.ts";
import type { Locks } from "../../../src/client/locks.ts";
import { bindLocks } from "../../../src/client/locks.ts";
import { parseClientOptions } from "../../../src/client/options.ts";
import { quorum } from "../../../src/drivers/quorum/driver.ts";
import type { QuorumSimulation } from "./simulation.ts";
import { connectMember, createSimulation } from "./simulation.ts";

const FAULT_PHASE_MS = 12_000;
const KEYS = ["a", "b"];

interface HeldLock {
  readonly key: string;
  readonly lock: Lock;
  readonly isExclusive: boolean;
  readonly actorName: string;
}

/** No two holders that exclude each other overlap, by their own view; tokens rise. */
class ExclusionChecker {
  readonly #holders = new Set<HeldLock>();
  readonly #highestToken = new Map<string, bigint>();
  readonly #highestExclusiveToken = new Map<string, bigint>();
  grants = 0;

  recordEnter(heldLock: HeldLock): void {
    const { key, lock, isExclusive, actorName } = heldLock;
    for (const otherHeldLock of this.#holders) {
      if (
        otherHeldLock.key !== key ||
        (!isExclusive && !otherHeldLock.isExclusive) ||
        otherHeldLock.lock.remainingMs <= 0
      )
        continue;
      assert.fail(
        `${actorName} and ${otherHeldLock.actorName} hold "${key}" at once (tokens ${lock.token}, ${otherHeldLock.lock.token})`,
      );
    }
    // readers may learn of their grants in another order than they were made in
    const before = (isExclusive ? this.#highestToken : this.#highestExclusiveToken).get(key) ?? 0n;
    assert.ok(lock.token > before, `${actorName}: token ${lock.token} after ${before}`);
    this.#highestToken.set(
      key,
      lock.token > (this.#highestToken.get(key) ?? 0n) ? lock.token : (this.#highestToken.get(key) as bigint),
    );
    if (isExclusive) this.#highestExclusiveToken.set(key, lock.token);
    this.grants++;
    this.#holders.add(heldLock);
  }

  recordLeave(heldLock: HeldLock): void {
    this.#holders.delete(heldLock);
  }

  /** It was detached and attached again, with no grant in between. */
  recordAttach(heldLock: HeldLock, token: bigint): void {
    assert.equal(heldLock.lock.token, token, `${heldLock.actorName}: the token of a lock that was taken up again`);
    assert.equal(
      this.#highestToken.get(heldLock.key),
      token,
      `${heldLock.actorName}: granted while the lock was detached`,
    );
    this.#highestToken.set(heldLock.key, token - 1n);
    this.recordEnter(heldLock);
  }
}

interface SimulatedClient {
  locks: Locks;
  readonly cutLinks: Set<number>;
  /** Another client replaces it. */
  replace(): Promise<void>;
}

/** The errors that users receive during faults. */
const EXPECTED_ERROR_CODES = new Set([
  "LOCK_TIMEOUT",
  "LOCK_STORE_FAILED",
  "LOCK_STORE_REFUSED",
  "LOCK_CLOSED",
  "LOCK_LOST",
  "LOCK_UNSUPPORTED",
]);

function ignoreExpectedError(error: { readonly code?: string }): null {
  if (EXPECTED_ERROR_CODES.has(error.code ?? "")) return null;
  throw error;
}

/** Runs one seed. @throws Error naming the seed and the failure; returns the number of grants */
export async function runQuorumSeed(seed: number): Promise<number> {
  const simulation = createSimulation(seed);
  const checker = new ExclusionChecker();
  const clients = Array.from({ length: 2 + simulation.random.int(3) }, () => createClient(simulation));
  let failure: unknown = null;
  const closings: Promise<void>[] = [];
  const actors = clients.flatMap((client, index) =>
    Array.from({ length: 1 + simulation.random.int(2) }, (_, number) =>
      runActor(simulation, checker, client, clients, `${index}.${number}`),
    ),
  );
  const longHolder = runLongHolder(simulation, checker, clients);
  let finished = false;
  const completion = Promise.all([...actors, longHolder]).then(
    () => {
      finished = true;
    },
    (error: unknown) => {
      failure ??= error;
    },
  );
  void completion;
  try {
    await injectFaults(simulation, clients, closings, () => failure);
    simulation.isQuiet = true;
    for (let elapsedMs = 0; !finished && failure === null; elapsedMs += 100) {
      assert.ok(elapsedMs < 20 * simulation.ttlMs, "who waits is served when the trouble is over");
      await simulation.clock.advance(100);
    }
    if (failure !== null) throw failure;
    await expectNothingLeft(simulation, clients, closings);
  } catch (error) {
    throw new Error(`seed ${seed} (${simulation.members.length} members): ${String(error)}`, { cause: error });
  }
  return checker.grants;
}

function createClient(simulation: QuorumSimulation): SimulatedClient {
  const cutLinks = new Set<number>();
  const clock = simulation.createDriftingClock();
  const random = simulation.random.fork();
  const order = random.chance(0.5) ? "strict" : "process";
  const settings = {
    ...parseClientOptions({ clock, ttl: simulation.ttlMs, order }),
    handoffLimits: { holders: 8, ms: 10 },
  };
  const open = (): Locks => {
    const links = simulation.members.map((member, index) =>
      connectMember(simulation, member, () => cutLinks.has(index)),
    );
    const driver = quorum(links, { clock, random: () => random.next() });
    return bindLocks(new Client(driver, settings, () => random.next()));
  };
  const client: SimulatedClient = {
    locks: open(),
    cutLinks,
    replace() {
      const { locks } = client;
      client.locks = open();
      return locks.close();
    },
  };
  return client;
}

async function runActor(
  simulation: QuorumSimulation,
  checker: ExclusionChecker,
  client: SimulatedClient,
  clients: readonly SimulatedClient[],
  actorName: string,
): Promise<void> {
  const random = simulation.random.fork();
  while (!simulation.isQuiet) {
    await simulation.delay(random.next() * 300);
    const key = random.pick(KEYS);
    const isExclusive = random.chance(0.8);
    const { locks } = client;
    if (random.chance(0.05)) await listLocks(locks);
    const target = isExclusive ? locks.mutex(key) : locks.rw(key).read;
    const wait = random.chance(0.2) ? 0 : random.int(8_000);
    const lock = await target.acquire({ wait }).catch(ignoreExpectedError);
    if (lock === null) continue;
    const holding = { key, lock, isExclusive, actorName };
    checker.recordEnter(holding);
    await simulation.delay(random.next() * (random.chance(0.1) ? 2 * simulation.ttlMs : 200));
    checker.recordLeave(holding);
    if (isExclusive && random.chance(0.15)) await transferLock(simulation, checker, holding, random.pick(clients));
    else await releaseLock(simulation, lock);
  }
}

async function releaseLock(simulation: QuorumSimulation, lock: Lock): Promise<void> {
  for (const { activeClaim } of (lock as LockHandle).localHolds) simulation.releasedClaims.add(activeClaim.claim.id);
  await lock.release();
}

/** Holds a key through all faults, and then checks that the lock is intact: in the list, and on transfer. */
async function runLongHolder(
  simulation: QuorumSimulation,
  checker: ExclusionChecker,
  clients: readonly SimulatedClient[],
): Promise<void> {
  const [source, target] = [clients[0] as SimulatedClient, clients[1] as SimulatedClient];
  const key = "kept";
  while (!simulation.isQuiet) {
    await simulation.delay(100);
    const lock = await source.locks.acquire(key, { wait: 2_000 }).catch(ignoreExpectedError);
    if (lock === null) continue;
    const holding = { key, lock, isExclusive: true, actorName: "keeper" };
    checker.recordEnter(holding);
    while (!simulation.isQuiet && !lock.signal.aborted) await simulation.delay(100);
    // lost entries are restored by renewals; expired ones when they are forgotten
    await simulation.delay(3 * simulation.ttlMs);
    checker.recordLeave(holding);
    if (lock.remainingMs <= 0) {
      await lock.release();
      continue;
    }
    const { token } = lock;
    const views = await target.locks.list(key);
    assert.deepEqual(
      views.map(({ token }) => token),
      [token],
      "a kept lock is listed as held",
    );
    const attachedLock = await target.locks.attach(await lock.detach());
    checker.recordAttach({ ...holding, lock: attachedLock }, token);
    checker.recordLeave(holding);
    await attachedLock.release();
    return;
  }
}

/** The lock is transferred to another client, which releases it, or forgets it. */
async function transferLock(
  simulation: QuorumSimulation,
  checker: ExclusionChecker,
  { key, lock, actorName }: HeldLock,
  target: SimulatedClient,
): Promise<void> {
  const { token } = lock;
  const random = simulation.random.fork();
  const reference = await lock.detach().catch(ignoreExpectedError);
  if (reference === null) return void (await lock.release());
  await simulation.delay(random.next() * 0.5 * simulation.ttlMs);
  const attachedLock = await target.locks.attach(reference).catch(ignoreExpectedError);
  if (attachedLock === null) return;
  const holding = { key, lock: attachedLock, isExclusive: true, actorName: `${actorName}, taken up` };
  checker.recordAttach(holding, token);
  await simulation.delay(random.next() * simulation.ttlMs);
  checker.recordLeave(holding);
  await releaseLock(simulation, attachedLock);
}

async function listLocks(locks: Locks): Promise<void> {
  const views = (await locks.list("").catch(ignoreExpectedError)) ?? [];
  assert.equal(new Set(views.map(({ tag }) => tag)).size, views.length, "a claim is listed twice");
}

/** A member falls silent, refuses, has its clock set or comes back empty (after a lease, as required); a client is cut off, or replaced. */
async function injectFaults(
  simulation: QuorumSimulation,
  clients: readonly SimulatedClient[],
  closings: Promise<void>[],
  failed: () => unknown,
): Promise<void> {
  const { random, clock, ttlMs } = simulation;
  const end = clock.now() + FAULT_PHASE_MS;
  const maxDelayMs = random.chance(0.5) ? 800 : 4_000;
  while (clock.now() < end && failed() === null) {
    await clock.advance(random.next() * maxDelayMs);
    const index = random.int(simulation.members.length);
    const member = simulation.members[index];
    if (member === undefined || member.outage !== null) continue;
    const draw = random.next();
    if (draw < 0.1) closings.push(random.pick(clients).replace());
    else if (draw < 0.4) {
      member.outage = random.pick(["silent", "refusing", "fatal"] as const);
      runAfter(simulation, random.next() * 3_000, () => {
        member.outage = null;
      });
    } else if (draw < 0.6 && !simulation.losesState) member.setWall((random.next() - 0.5) * 7_200_000);
    else if (draw < 0.6) {
      member.outage = "refusing";
      runAfter(simulation, 1.02 * ttlMs, () => {
        member.store = member.createStore();
        member.epoch++;
        member.outage = null;
      });
    } else {
      const { cutLinks } = random.pick(clients);
      cutLinks.add(index);
      runAfter(simulation, random.next() * 2_500, () => cutLinks.delete(index));
    }
  }
  await clock.advance(3_100);
}

function runAfter(simulation: QuorumSimulation, ms: number, run: () => void): void {
  void simulation.delay(ms).then(run);
}

/** A key is free for the next claim, and when leases are over no member has any claim left. */
async function expectNothingLeft(
  simulation: QuorumSimulation,
  clients: readonly SimulatedClient[],
  closings: readonly Promise<void>[],
): Promise<void> {
  const { clock, ttlMs } = simulation;
  const { locks } = clients[0] as SimulatedClient;
  for (const key of KEYS) {
    const pendingLock = locks.acquire(key, { wait: 3 * ttlMs });
    let lock: Lock | undefined;
    pendingLock.then(
      (granted) => {
        lock = granted;
      },
      () => undefined,
    );
    await clock.advance(3 * ttlMs + 3_000);
    assert.ok(lock !== undefined, `"${key}" is free`);
    const pendingRelease = lock.release();
    await clock.advance(1_000);
    await pendingRelease;
  }
  const closed = Promise.all([...closings, ...clients.map((client) => client.locks.close())]);
  await clock.advance(6_000);
  await closed;
  await clock.advance(ttlMs);
  assert.deepEqual(
    simulation.strayClaims,
    [],
    "a member was left with places of claims that it had been told to release",
  );
  for (const { store } of simulation.members) {
    tableOf(store).advance({ now: store.clock.now(), micros: 0 });
    assert.equal(tableOf(store).records.size, 0, "a member still has claims");
  }
}
