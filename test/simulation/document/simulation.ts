/** Processes that keep locks in documents, with a bad network and clocks that differ, in simulated time: all follows from a seed. */

import type { DocumentStore } from "../../../src/drivers/document/store.ts";
import type { Clock, Timer } from "../../../src/util/clock.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import type { SeededRandom } from "../../support/seeded-random.ts";
import { seededRandom } from "../../support/seeded-random.ts";
import type { CallFault } from "../../support/stores/memory-documents.ts";
import { MemoryDocuments } from "../../support/stores/memory-documents.ts";

/** A process: it can be stopped, and goes on with what came meanwhile; one that is killed never does. */
export interface SimulatedProcess {
  readonly clock: Clock;
  readonly store: DocumentStore;
  readonly isStopped: boolean;
  /** Settles when it is killed. */
  readonly killed: Promise<void>;
  stop(): void;
  resume(): void;
  kill(): void;
  /** Settles when it runs, or is killed. Does it run? */
  whenRunning(): Promise<boolean>;
}

export interface DocumentSimulation {
  readonly random: SeededRandom;
  readonly clock: FakeClock;
  readonly documents: MemoryDocuments;
  readonly ttlMs: number;
  readonly canWatch: boolean;
  /** The faults have ended. */
  isQuiet: boolean;
  /** What was wrong in a document after a write; null: nothing. */
  violation: string | null;
  delay(ms: number): Promise<void>;
  startProcess(): SimulatedProcess;
}

/** How often each fault happens to a call, in the network of a seed. */
interface FaultRates {
  readonly conflict: number;
  readonly lostCall: number;
  readonly lostReply: number;
  readonly stale: number;
  /** A call takes up to two leases: its write may come when its process has long given it up. */
  readonly slow: number;
}

const NETWORKS: readonly FaultRates[] = [
  { conflict: 0, lostCall: 0, lostReply: 0, stale: 0, slow: 0 },
  { conflict: 0.5, lostCall: 0, lostReply: 0, stale: 0, slow: 0 },
  { conflict: 0.1, lostCall: 0.1, lostReply: 0.2, stale: 0, slow: 0.05 },
  { conflict: 0, lostCall: 0, lostReply: 0, stale: 0.3, slow: 0.02 },
  { conflict: 0.1, lostCall: 0.05, lostReply: 0.1, stale: 0.1, slow: 0.15 },
];

export function createDocumentSimulation(seed: number): DocumentSimulation {
  const random = seededRandom(seed);
  const clock = new FakeClock();
  const documents = new MemoryDocuments();
  const rates = random.pick(NETWORKS);
  const usualMs = random.pick([1, 10, 60]);
  const network = random.fork();
  const delay = (ms: number): Promise<void> => new Promise((resolve) => clock.timer(resolve).set(clock.now() + ms));
  const simulation: DocumentSimulation = {
    ...{ random, clock, documents, delay, isQuiet: false, violation: null },
    ttlMs: 1_000 + random.int(2_000),
    canWatch: random.chance(0.5),
    startProcess: () => startProcess(simulation),
  };
  documents.pass = () => {
    const isSlow = !simulation.isQuiet && network.chance(rates.slow);
    return delay(network.next() * (isSlow ? 2 * simulation.ttlMs : usualMs));
  };
  documents.onCall = (call) => (simulation.isQuiet ? undefined : drawFault(network, rates, call));
  documents.onWritten = () => {
    simulation.violation ??= documents.findViolations()[0] ?? null;
  };
  return simulation;
}

function drawFault(random: SeededRandom, rates: FaultRates, call: "read" | "write"): CallFault | undefined {
  const possible =
    call === "read" ? (["lostCall", "lostReply", "stale"] as const) : (["conflict", "lostCall", "lostReply"] as const);
  return possible.find((fault) => random.chance(rates[fault]));
}

function startProcess({ random, clock, documents, canWatch }: DocumentSimulation): SimulatedProcess {
  const inner = documents.client({ canWatch });
  const rate = 0.995 + random.next() * 0.01;
  const state = { isStopped: false, isKilled: false };
  const endings: (() => void)[] = [];
  let waiting: (() => void)[] = [];
  /** What comes while the process is stopped waits for it. */
  const whenRunning = (run: () => void): void => {
    if (state.isStopped) waiting.push(run);
    else run();
  };
  const runWaiting = (): void => {
    const due = waiting;
    waiting = [];
    for (const run of due) whenRunning(run);
  };
  const receive = <T>(call: Promise<T>): Promise<T> =>
    new Promise((resolve, reject) => {
      call.then(
        (value) => whenRunning(() => resolve(value)),
        (error: unknown) => whenRunning(() => reject(error)),
      );
    });
  const watch = (name: string, changed: () => void): (() => void) => {
    const end = inner.watch?.(name, () => whenRunning(changed)) ?? (() => undefined);
    endings.push(end);
    return end;
  };
  let markKilled = (): void => undefined;
  const killed = new Promise<void>((resolve) => {
    markKilled = resolve;
  });
  return {
    clock: createProcessClock(clock, rate, (random.next() - 0.5) * 500, whenRunning),
    store: {
      name: inner.name,
      read: (name, signal) => receive(inner.read(name, signal)),
      write: (name, bytes, version, signal) => receive(inner.write(name, bytes, version, signal)),
      ...(canWatch && { watch }),
    },
    get isStopped() {
      return state.isStopped;
    },
    killed,
    stop() {
      state.isStopped = true;
    },
    resume() {
      if (state.isKilled) return;
      state.isStopped = false;
      runWaiting();
    },
    kill() {
      Object.assign(state, { isStopped: true, isKilled: true });
      for (const end of endings) end();
      markKilled();
    },
    whenRunning: () =>
      Promise.race([new Promise<true>((resolve) => whenRunning(() => resolve(true))), killed.then(() => false)]),
  };
}

/** The clock of a process: at its own rate, with timers that fire when the process runs. */
function createProcessClock(
  clock: FakeClock,
  rate: number,
  wallAheadMs: number,
  whenRunning: (run: () => void) => void,
): Clock {
  return {
    now: () => clock.now() * rate,
    wall: () => clock.wall() + wallAheadMs,
    uptime: () => clock.uptime() * rate,
    timer(run): Timer {
      let isSet = false;
      const timer = clock.timer(() =>
        whenRunning(() => {
          if (!isSet) return; // it was unset while the process was stopped
          isSet = false;
          run();
        }),
      );
      return {
        ...timer,
        set(due) {
          isSet = due !== null;
          // never a rounding early: a caller that finds nothing due yet sets it again
          timer.set(due === null ? null : due / rate + 1e-6);
        },
        stop() {
          isSet = false;
          timer.stop();
        },
      };
    },
  };
}
