/**
 * A torture: workers take locks while a nemesis injects faults, a register in a process of its own keeps the history, and the checker
 * gives a verdict on it.
 *
 *   start     the store, the register, the proxies, the workers
 *   struck    faults, one or two at a time
 *   healed    all are repaired; the workers go on for two leases and a second more: each key must be granted again
 *   stopping  the workers end what they do
 *   over      after two more leases nothing may be left in the store
 */

import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import type { Socket } from "node:net";
import { connect } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Locks } from "../client/locks.ts";
import type { LocksOptions } from "../client/options.ts";
import { LockTimeoutError, StoreError, StoreRefusedError } from "../errors.ts";
import { createRandom } from "../testing/random.ts";
import type { Verdict } from "./checker.ts";
import { checkHistory } from "./checker.ts";
import type { FaultName } from "./faults.ts";
import { createFault, NETWORK_FAULTS } from "./faults.ts";
import type { NemesisEvent, RunHeader } from "./history.ts";
import { HISTORY_FORMAT, readHistory } from "./history.ts";
import { injectFaults } from "./nemesis.ts";
import type { History } from "./operations.ts";
import { readOperations } from "./operations.ts";
import type { PlaceProxy } from "./place-proxy.ts";
import { startPlaceProxy } from "./place-proxy.ts";
import type { ChildCommand } from "./processes/child-command.ts";
import { endWithParent } from "./processes/end-with-parent.ts";
import type { ProxiedStore } from "./store-urls.ts";
import { findProxyTargets } from "./store-urls.ts";
import type { StartedStore } from "./stores/started-store.ts";
import { isStoreFault, STORE_FAULT_REASONS } from "./stores/started-store.ts";
import type { WorkerSettings } from "./worker.ts";
import type { WorkerPoolOptions } from "./worker-pool.ts";
import { WorkerPool } from "./worker-pool.ts";

export type OpenLocks = (options: LocksOptions) => Promise<Locks>;

export interface TortureOptions {
  /** For the history and the reports. */
  readonly directory: string;
  /** For sockets and the files of the kernel's locks: a short path. */
  readonly temporaryDirectory: string;
  /** Null: the store has none. */
  readonly url: string | null;
  /** The module of a driver of the user, instead of the url. */
  readonly driver: string | null;
  /** Connects to the store; null: it is the server of a rival, which Holdfast does not know. */
  readonly open: OpenLocks | null;
  /** Its name in the report. */
  readonly storeName: string;
  /** The store, if this run has started it. */
  readonly store: StartedStore | null;
  /** Before every key. */
  readonly prefix: string;
  readonly seed: number;
  readonly ms: number;
  readonly ttlMs: number;
  readonly workers: number;
  readonly faults: readonly FaultName[];
  readonly requestsPerSecond: number;
  /** The module of a rival's adapter; null: Holdfast. */
  readonly subjectPath: string | null;
  /** What is tortured, with its version. */
  readonly subjectName: string;
  readonly versions: Readonly<Record<string, string>>;
  readonly workerCommand: ChildCommand;
  readonly registerCommand: ChildCommand;
  /** Ends the run early; all is cleaned up. */
  readonly signal: AbortSignal;
}

export interface TortureResult {
  readonly historyPath: string;
  readonly history: History;
  readonly verdict: Verdict;
  /** Faults that cannot be injected here, with the reason. */
  readonly notTested: Readonly<Record<string, string>>;
}

/** Its warnings are for programs, not for a run. */
const ignore = (): void => undefined;
const SILENT = { debug: ignore, info: ignore, warn: ignore, error: ignore };
const BYSTANDER_MS = 200;
const BYSTANDER_KEY = "bystander";
const FIRST_GRANT_MS = 10_000;
/** For the start of all workers. */
const START_MS = 60_000;
/** For workers that are stopped, besides the longest wait of a request. */
const FINISH_MS = 10_000;
const MAX_LISTED_MS = 5_000;
/** A store that was killed may grant nothing until every lease of before has ended: on our server that is at most a minute. */
const LONGEST_RECOVERY_MS = 65_000;
const POLL_MS = 20;

/** The leases that a run may use, in milliseconds: short ones show more, and a run that is killed leaves its locks for no longer. */
const LEASES = [1_000, 2_000, 5_000, 10_000] as const;

/**
 * The shortest lease of these that the store grants, and within which it answers.
 * @throws StoreRefusedError if it grants none of them, TypeError for a wrong url, StoreError if it cannot be reached
 */
export async function findLease(open: OpenLocks, prefix: string): Promise<number> {
  for (const ttlMs of LEASES) {
    const locks = await open({ prefix, ttl: ttlMs, logger: SILENT });
    try {
      // a store that guards against the loss of its data grants nothing at first
      await (await locks.acquire(BYSTANDER_KEY, { wait: FIRST_GRANT_MS })).release();
      return ttlMs;
    } catch (error) {
      const isTooShort =
        error instanceof StoreRefusedError || error instanceof StoreError || error instanceof LockTimeoutError;
      if (!isTooShort || ttlMs === LEASES.at(-1)) throw error;
    } finally {
      await locks.close();
    }
  }
  return LEASES[3];
}

/** @throws Error if the store, the register or a proxy cannot be started */
export async function runTorture(options: TortureOptions): Promise<TortureResult> {
  const { directory } = options;
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const historyPath = join(directory, "history.jsonl");
  writeFileSync(historyPath, `${JSON.stringify(createHeader(options))}\n`, { mode: 0o600 });
  const cleanups: (() => Promise<unknown>)[] = [];
  let notTested: TortureResult["notTested"];
  try {
    notTested = await runPhases(options, historyPath, (cleanup) => void cleanups.unshift(cleanup));
  } finally {
    for (const cleanup of cleanups) await cleanup();
  }
  const history = readOperations(readHistory(historyPath));
  return { historyPath, history, verdict: checkHistory(history), notTested };
}

/** One for each place; none if the store has no addresses for them. */
async function startProxies({ workers }: TortureOptions, proxied: ProxiedStore | null): Promise<readonly PlaceProxy[]> {
  if (proxied === null) return [];
  return Promise.all(Array.from({ length: workers }, () => startPlaceProxy(proxied.targets)));
}

function startWorkers(
  options: TortureOptions,
  run: Pick<WorkerSettings, "startedAt" | "registerPath"> & { urlOf(place: number): string | undefined },
  reporting: Pick<WorkerPoolOptions, "now" | "report">,
): WorkerPool {
  const { prefix, ttlMs, subjectPath, driver, seed, temporaryDirectory: directory } = options;
  const { urlOf, ...times } = run;
  const requestsPerSecond = options.requestsPerSecond / options.workers;
  // before the workers start
  const environment = options.store?.admitUsers?.() ?? {};
  return new WorkerPool({
    command: options.workerCommand,
    places: options.workers,
    environment,
    ...reporting,
    settingsOf: (worker, place) => ({
      ...{ worker, url: urlOf(place), prefix, ttlMs, seed: seed * 1_000 + worker, ...times },
      ...{ directory, subjectPath, driver, requestsPerSecond },
    }),
  });
}

/** @param onEnd receives what must be done at the end, the latest first */
async function runPhases(
  options: TortureOptions,
  historyPath: string,
  onEnd: (cleanup: () => Promise<unknown>) => void,
): Promise<TortureResult["notTested"]> {
  const { temporaryDirectory, ttlMs, seed, signal } = options;
  const startedAt = process.hrtime.bigint();
  const now = (): number => Number((process.hrtime.bigint() - startedAt) / 1_000n);
  const registerPath = join(temporaryDirectory, "register");
  const register = await startRegister(options, registerPath, historyPath, startedAt);
  onEnd(() => register.close());
  const report = (event: NemesisEvent): void => void register.socket.write(`${JSON.stringify(event)}\n`);

  const proxied = options.url === null ? null : findProxyTargets(options.url);
  const proxies = await startProxies(options, proxied);
  onEnd(() => Promise.all(proxies.map((proxy) => proxy.close())));
  const urlOf = (place: number): string | undefined =>
    proxied === null ? (options.url ?? undefined) : proxied.urlAt((proxies[place] as PlaceProxy).addresses);
  const pool = startWorkers(options, { urlOf, startedAt: startedAt.toString(), registerPath }, { now, report });
  onEnd(() => pool.abort());
  // this process is no such user
  const locks = options.store?.admitUsers === undefined ? await openLocks(options, onEnd) : null;
  const bystander = locks && new Bystander(locks, report, now);
  onEnd(async () => bystander?.stop());

  const { faults, notTested } = chooseFaults(options, proxies);
  // faults of a store that no worker has reached yet would only keep them from starting
  await pool.whenReady(START_MS, signal);
  const targets = { workers: pool, proxies, store: options.store, ttlMs };
  const strikes = faults.map((name) => createFault(name, targets));
  const random = createRandom(seed);
  await injectFaults({ faults: strikes, places: options.workers, random, ttlMs, report, now }, options.ms, signal);
  await bystander?.waitForGrant(LONGEST_RECOVERY_MS, signal);
  if (signal.aborted) return notTested;
  report({ event: "healed", at: now() });
  await delay(2 * ttlMs + 2_000, undefined, { signal }).catch(() => undefined);
  if (signal.aborted) return notTested;
  report({ event: "stopping", at: now() });
  bystander?.stop();
  await pool.finish(8 * ttlMs + FINISH_MS);
  await delay(2 * ttlMs);
  const leftovers = await countLeftovers(options, locks ?? (await openLocks(options, onEnd)));
  report({ event: "leftovers", at: now(), count: leftovers });
  return notTested;
}

/** Null: the store is that of a rival. They are closed at the end. */
async function openLocks(
  { open, prefix, ttlMs }: TortureOptions,
  onEnd: (cleanup: () => Promise<unknown>) => void,
): Promise<Locks | null> {
  const locks = (await open?.({ prefix, ttl: ttlMs, logger: SILENT })) ?? null;
  onEnd(async () => locks?.close());
  return locks;
}

/** Null: those of a rival cannot be seen. */
async function countLeftovers({ subjectPath }: TortureOptions, locks: Locks | null): Promise<number | null> {
  return subjectPath !== null || locks === null ? null : countClaims(locks);
}

function createHeader(options: TortureOptions): RunHeader {
  const { seed, subjectName, storeName, ttlMs, workers, ms, faults, versions } = options;
  return {
    ...{ event: "run", format: HISTORY_FORMAT, seed, subject: subjectName, store: storeName, ttlMs, workers },
    ...{ seconds: ms / 1_000, faults, versions },
  };
}

function chooseFaults(
  { faults, store }: TortureOptions,
  proxies: readonly PlaceProxy[],
): { readonly faults: readonly FaultName[]; readonly notTested: Readonly<Record<string, string>> } {
  const notTested: Record<string, string> = {};
  for (const name of faults) {
    if ((NETWORK_FAULTS as readonly string[]).includes(name) && proxies.length === 0)
      notTested[name] =
        "no proxy can be put before the store: it has TLS, no address, or tells its clients addresses of its own";
    if (!isStoreFault(name)) continue;
    if (store === null) notTested[name] = "this run has not started the store";
    else if (!store.faults.includes(name)) notTested[name] = STORE_FAULT_REASONS[name];
  }
  return { faults: faults.filter((name) => notTested[name] === undefined), notTested };
}

interface RunningRegister {
  readonly socket: Socket;
  close(): Promise<void>;
}

async function startRegister(
  { registerCommand }: TortureOptions,
  path: string,
  historyPath: string,
  startedAt: bigint,
): Promise<RunningRegister> {
  const [program = "", ...args] = endWithParent([...registerCommand, path, historyPath, startedAt.toString()]);
  // Ctrl-C of a terminal must not reach it: it keeps the history to the end
  const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"], detached: true });
  await new Promise<void>((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`the register ended with code ${code}`)));
    child.stdout.once("data", () => resolve());
  });
  const socket = connect(path);
  return {
    socket,
    async close() {
      await new Promise<void>((resolve) => socket.end(resolve));
      await new Promise<void>((resolve) => {
        child.once("exit", () => resolve());
        child.stdin.end();
      });
    },
  };
}

/** Uses the store for something else meanwhile: how do the faults and the load affect others? */
class Bystander {
  #isOver = false;
  #grants = 0;
  constructor(locks: Locks, report: (event: NemesisEvent) => void, now: () => number) {
    void (async () => {
      while (!this.#isOver) {
        const sentAt = performance.now();
        const lock = await locks.tryAcquire(BYSTANDER_KEY).catch(() => null);
        const ms = lock === null ? null : performance.now() - sentAt;
        if (lock !== null) this.#grants++;
        await lock?.release().catch(() => false);
        if (!this.#isOver) report({ event: "bystander", at: now(), ms });
        await delay(BYSTANDER_MS);
      }
    })();
  }

  /** Settles when the store has granted it a lock that it asked for from now on, or the time has passed. */
  async waitForGrant(withinMs: number, signal: AbortSignal): Promise<void> {
    const endsAt = performance.now() + withinMs;
    // the first one may have been asked for before
    const enough = this.#grants + 2;
    while (this.#grants < enough && performance.now() < endsAt && !signal.aborted)
      await delay(POLL_MS, undefined, { signal }).catch(() => undefined);
  }

  stop(): void {
    this.#isOver = true;
  }
}

/** Null: the store cannot list its claims. */
async function countClaims(locks: Locks): Promise<number | null> {
  const listed = locks.list().then(
    (claims) => claims.length,
    () => null,
  );
  return Promise.race([listed, delay(MAX_LISTED_MS, null)]);
}
