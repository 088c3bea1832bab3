/** Clients at work on documents under faults. The checker uses only their own view, and the bytes in the store. */

import assert from "node:assert/strict";
// else loaded when first used, while simulated time goes on
import "../../../src/client/transfer.ts";
import "../../../src/client/admin.ts";
import { Client } from "../../../src/client/client.ts";
import type { Lock } from "../../../src/client/lock.ts";
import type { Locks } from "../../../src/client/locks.ts";
import { bindLocks } from "../../../src/client/locks.ts";
import { parseClientOptions } from "../../../src/client/options.ts";
import type { HoldMode } from "../../../src/conformance/occupancy.ts";
import { Occupancy } from "../../../src/conformance/occupancy.ts";
import { createDocumentDriver } from "../../../src/drivers/document/driver.ts";
import type { DocumentSimulation, SimulatedProcess } from "./simulation.ts";
import { createDocumentSimulation } from "./simulation.ts";

const FAULT_PHASE_MS = 15_000;
const KEYS = ["a", "b", "c"];
const PERMITS = 2;
const DOCUMENTS = 2;

const ignore = (): void => undefined;
/** A process that is killed leaves its locks behind, and would warn of them. */
const SILENT_LOGGER = { debug: ignore, info: ignore, warn: ignore, error: ignore };

/** The errors that users receive during faults. */
const EXPECTED_ERROR_CODES = new Set(["LOCK_TIMEOUT", "LOCK_STORE_FAILED", "LOCK_CLOSED", "LOCK_LOST"]);

interface SimulatedClient {
  process: SimulatedProcess;
  locks: Locks;
}

interface Run {
  readonly simulation: DocumentSimulation;
  readonly clients: readonly SimulatedClient[];
  readonly occupancy: Occupancy;
  grants: number;
}

/** Runs one seed. @returns the number of grants. @throws Error naming the seed and the failure */
export async function runDocumentSeed(seed: number): Promise<number> {
  const simulation = createDocumentSimulation(seed);
  const clients = Array.from({ length: 2 + simulation.random.int(3) }, () => startClient(simulation));
  const run: Run = { simulation, clients, occupancy: new Occupancy(PERMITS, true), grants: 0 };
  let failure: unknown = null;
  let running = 0;
  for (const client of clients) {
    for (let actor = 0; actor <= simulation.random.int(3); actor++) {
      running++;
      runActor(run, client).then(
        () => running--,
        (error: unknown) => {
          failure ??= error;
        },
      );
    }
  }
  const check = (): void => {
    if (failure !== null) throw failure;
    assert.equal(simulation.violation, null);
  };
  try {
    await injectFaults(run, check);
    for (let elapsedMs = 0; running > 0; elapsedMs += 100) {
      assert.ok(elapsedMs < 30 * simulation.ttlMs, "what waits is served when the faults are over");
      await simulation.clock.advance(100);
      check();
    }
    await expectNothingLeft(run, check);
  } catch (error) {
    throw new Error(`seed ${seed}: ${String(error)}`, { cause: error });
  }
  return run.grants;
}

function startClient(simulation: DocumentSimulation): SimulatedClient {
  const { random, ttlMs } = simulation;
  const process = simulation.startProcess();
  const { clock } = process;
  const driverRandom = random.fork();
  const options = { documents: DOCUMENTS, pollMs: 50, callTimeoutMs: Math.round(ttlMs / 5), clock };
  const driver = createDocumentDriver(process.store, options, 100, () => driverRandom.next());
  const order = random.pick(["strict", "process"] as const);
  const cache = order === "process" && random.chance(0.5) ? Math.round(ttlMs / 2) : 0;
  const settings = parseClientOptions({ clock, ttl: ttlMs, order, cache, logger: SILENT_LOGGER });
  const handoffLimits = { holders: 8, ms: 10 };
  return { process, locks: bindLocks(new Client(driver, { ...settings, handoffLimits }, () => driverRandom.next())) };
}

async function runActor(run: Run, client: SimulatedClient): Promise<void> {
  const { simulation } = run;
  const random = simulation.random.fork();
  for (; !simulation.isQuiet; ) {
    await simulation.delay(random.next() * 200);
    const { locks, process } = client;
    if (!(await process.whenRunning())) continue;
    const mode = random.pick<HoldMode>(["write", "write", "read", "permit"]);
    const key = mode === "permit" ? "p" : random.pick(KEYS);
    const target = { write: locks.mutex(key), read: locks.rw(key).read, permit: locks.semaphore(key, PERMITS) }[mode];
    const wait = random.chance(0.2) ? 0 : random.int(6_000);
    // a process that is killed never answers
    const lock = await unlessKilled(process, target.acquire({ wait }));
    if (lock === null) continue;
    const holder = run.occupancy.enter(lock, mode);
    run.grants++;
    await simulation.delay(random.next() * (random.chance(0.15) ? 2 * simulation.ttlMs : 100));
    const isAlive = await process.whenRunning();
    run.occupancy.leave(holder);
    if (!isAlive) continue;
    if (mode === "write" && random.chance(0.15)) await transfer(simulation, process, lock, random.pick(run.clients));
    else await unlessKilled(process, lock.release());
  }
}

/** Hands the lock over to another process, which releases it, or forgets it. */
async function transfer(
  simulation: DocumentSimulation,
  source: SimulatedProcess,
  lock: Lock,
  target: SimulatedClient,
): Promise<void> {
  const { process, locks } = target;
  const { token } = lock;
  const reference = await unlessKilled(source, lock.detach());
  if (reference === null) await unlessKilled(source, lock.release()); // it could not be detached, and is still held
  await simulation.delay(simulation.random.next() * 0.5 * simulation.ttlMs);
  if (reference === null || !(await process.whenRunning())) return;
  const attached = await unlessKilled(process, locks.attach(reference));
  if (attached === null) return;
  assert.equal(attached.token, token, "the token of a lock that was attached");
  await unlessKilled(process, attached.release());
}

/** The result; null if the process is killed before, or for an error of faults. */
function unlessKilled<T>(process: SimulatedProcess, work: Promise<T>): Promise<T | null> {
  const result = work.catch((error: { readonly code?: string }) => {
    if (EXPECTED_ERROR_CODES.has(error.code ?? "")) return null;
    throw error;
  });
  return Promise.race([result, process.killed.then(() => null)]);
}

/** Processes are stopped for up to two leases, killed, or replaced by others that know nothing. */
async function injectFaults({ simulation, clients }: Run, check: () => void): Promise<void> {
  const random = simulation.random.fork();
  for (let elapsedMs = 0; elapsedMs < FAULT_PHASE_MS; ) {
    const ms = random.int(800);
    elapsedMs += ms;
    await simulation.clock.advance(ms);
    check();
    const client = random.pick(clients);
    const { process, locks } = client;
    if (process.isStopped || random.chance(0.4)) continue;
    if (random.chance(0.3)) {
      if (random.chance(0.5)) process.kill();
      else void locks.close().finally(() => process.kill());
      Object.assign(client, startClient(simulation));
    } else {
      process.stop();
      void simulation.delay(random.next() * 2 * simulation.ttlMs).then(() => process.resume());
    }
  }
  simulation.isQuiet = true;
}

/** When all leases are over, a process that has watched the documents for so long finds every key free, and no entry. */
async function expectNothingLeft({ simulation, clients }: Run, check: () => void): Promise<void> {
  const { clock, ttlMs } = simulation;
  const { locks } = clients[0] as SimulatedClient;
  for (const key of [...KEYS, "p"]) {
    let lock: Lock | undefined;
    const acquired = locks.acquire(key, { wait: 4 * ttlMs }).then((granted) => {
      lock = granted;
    });
    acquired.catch(() => undefined);
    await clock.advance(3 * ttlMs);
    check();
    assert.ok(lock !== undefined, `"${key}" is free`);
    const released = lock.release();
    await clock.advance(1_000);
    await released;
  }
  const closed = Promise.all(clients.map((client) => client.locks.close()));
  await clock.advance(5_000);
  await closed;
  assert.deepEqual(simulation.documents.listEntries(), [], "an entry is left");
  assert.equal(simulation.documents.watcherCount, 0, "a watch is left");
}
