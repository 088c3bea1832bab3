/**
 * Stores for tests of the library's upper layers: processes whose answers are lost and that a test stops and continues, over memory and
 * over a lock server that crashes, all on one manual clock. What the store has is read past all faults.
 */

// loaded before the tests: what loads them on demand would take turns of the event loop that they do not count
import "../../src/client/admin.ts";
import "../../src/client/event-log.ts";
import { createLocks } from "../../src/client/locks.ts";
import "../../src/client/transfer.ts";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import type { Locks, LocksOptions } from "../../src/index.ts";
import type { ChaosDriver } from "../../src/testing/chaos/driver.ts";
import { chaos } from "../../src/testing/chaos/driver.ts";
import { delegate } from "../../src/testing/delegate.ts";
import "../../src/leader/leader.ts";
import "../../src/leader/term.ts";
import type { Driver } from "../../src/spi/driver.ts";
import { NO_EVENTS } from "./driver-events.ts";
import { FakeClock, flushEventLoop } from "./fake-clock.ts";
import { onCleanup } from "./server-fixture.ts";
import { ServerHarness } from "./server-harness.ts";
import { StoppableProcess } from "./stoppable-process.ts";

/** One process with locks on the store. */
export interface FaultyProcess {
  readonly locks: Locks;
  /** Loses its calls and their answers, and breaks its connection. */
  readonly network: ChaosDriver;
  stop(): void;
  continue(): void;
}

export interface FaultyStore {
  readonly clock: FakeClock;
  /** The ids of all claims that were made: secrets. */
  readonly claimIds: string[];
  /** Starts a process; its label is that of its claims. */
  start(label: string, options?: LocksOptions): FaultyProcess;
  /** What the store has of a key, in order: "a holds", "b waits". */
  read(key: string): Promise<readonly string[]>;
  advance(ms: number): Promise<void>;
}

/** A lock server: it can crash. */
export interface FaultyServer extends FaultyStore {
  readonly harness: ServerHarness;
}

export async function createFaultyMemory(): Promise<FaultyStore> {
  const clock = new FakeClock();
  const store = memoryStore(clock);
  const createDriver = (program: StoppableProcess): Driver => program.wrapDriver(memory({ store }));
  return createStore(clock, createDriver, memory({ store }), {});
}

/** @param ttl of the claims; "session": as long as their process is connected */
export async function createFaultyServer(ttl: "10s" | "session"): Promise<FaultyServer> {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  const reader = harness.createDriver(new StoppableProcess(harness.clock));
  const store = await createStore(harness.clock, (program) => harness.createDriver(program), reader, { ttl });
  return { ...store, harness };
}

async function createStore(
  clock: FakeClock,
  createDriver: (program: StoppableProcess) => Driver,
  reader: Driver,
  defaults: LocksOptions,
): Promise<FaultyStore> {
  await settle(reader.open(NO_EVENTS));
  onCleanup(() => reader.close());
  const claimIds: string[] = [];
  return {
    clock,
    claimIds,
    start(label, options = {}) {
      const program = new StoppableProcess(clock);
      const network = chaos(createDriver(program));
      const recorder = delegate(network, {
        claim(claim) {
          claimIds.push(claim.id);
          return network.claim(claim);
        },
      });
      const locks = createLocks(recorder, { ttl: "10s", ...defaults, clock: program.clock, label, ...options });
      onCleanup(async () => {
        program.continue();
        network.reconnect();
        await settle(locks.close(), clock);
      });
      return { locks, network, stop: () => program.stop(), continue: () => program.continue() };
    },
    async read(key) {
      const { items } = await settle(reader.list({ key }, { max: 100 }));
      return items.map(({ label, answer }) => `${label} ${answer.state === "held" ? "holds" : "waits"}`);
    },
    advance: (ms) => clock.advance(ms),
  };
}

/** Waits for a call over connections that need turns of the event loop, and perhaps time of the manual clock. */
async function settle<T>(call: Promise<T>, clock?: FakeClock): Promise<T> {
  let isSettled = false;
  const done = (): void => {
    isSettled = true;
  };
  call.then(done, done);
  for (let second = 0; second < 60 && !isSettled; second++) {
    if (clock === undefined || second === 0) await flushEventLoop();
    else await clock.advance(1_000);
  }
  return call;
}
