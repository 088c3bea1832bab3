/**
 * A worker: some callers that take locks on a few keys in random ways, enter the registers, and leave them. It reports each step before
 * and after it is done. The nemesis may kill or stop it at any moment.
 */

import { closeSync, openSync } from "node:fs";
import type { Socket } from "node:net";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { flock } from "../os/flock.ts";
import { createRandom } from "../testing/random.ts";
import { hideSecrets } from "./hide-secrets.ts";
import type { Operation, RegisterReply, RegisterRequest, WorkerEvent } from "./history.ts";
import { operationId } from "./operations.ts";
import type { Hold, Subject, SubjectOptions } from "./subject.ts";
import type { KeySet, OperationChooser } from "./workload.ts";
import { createOperationChooser } from "./workload.ts";

/** The first line that a worker reads. */
export interface WorkerSettings extends SubjectOptions {
  readonly worker: number;
  readonly seed: number;
  /** Nanoseconds of the machine's monotonic clock at the start of the run, in decimal. */
  readonly startedAt: string;
  readonly registerPath: string;
  /** For the kernel's locks, one file for each key. */
  readonly directory: string;
  /** A module that exports `openSubject`; null: Holdfast. */
  readonly subjectPath: string | null;
  /** The module of a driver of the user, instead of the url. */
  readonly driver: string | null;
  /** The most requests of this worker a second. */
  readonly requestsPerSecond: number;
}

/** Each further line. */
export type WorkerCommand =
  /** Does nothing else for a time, as a long computation does. */
  | { readonly command: "block"; readonly ms: number }
  /**
   * Releases the present holds soon, and makes holds of long keys that begin within half a lease last so long. The worker prints "holding"
   * when one begins.
   */
  | { readonly command: "hold"; readonly ms: number }
  /** Moves this process's wall clock. */
  | { readonly command: "clock"; readonly ms: number }
  /** Ends its callers, gives all locks back, and exits. */
  | { readonly command: "stop" };

/** The keys of each caller. */
const CALLERS: readonly KeySet[] = ["long", "long", "long", "brief", "brief", "brief", "brief", "brief", "brief"];
/** The first ones always make requests; so many of the others as the store bears: one that all of them overload grants nothing at all. */
const LEAST_CALLERS = 4;
/** After a failure a caller waits for up to this time. */
const PAUSE_MS = 200;
/** A store that answers faster bears more callers. */
const FAST_ANSWER_MS = 30;
const BUSY_POLL_MS = 50;
/** While it works, a caller asks this often whether it still holds the lock. */
const QUESTION_MS = 20;
/** It reports this often that it runs, whatever its callers do. */
const RUNS_MS = 100;

class Worker {
  readonly #settings: WorkerSettings;
  readonly #subject: Subject;
  readonly #register: Socket;
  readonly #chooser: OperationChooser;
  readonly #random: ReturnType<typeof createRandom>;
  readonly #replies = new Map<string, (reply: RegisterReply) => void>();
  readonly #startedAt: bigint;
  #nextOperation = 0;
  #isStopping = false;
  #activeCallers = LEAST_CALLERS;
  /** Counts the commands to hold. */
  #round = 0;
  #longMs = 0;
  #longBefore = 0;
  readonly #nextRequestAt: Record<KeySet, number> = { long: 0, brief: 0 };

  constructor(settings: WorkerSettings, subject: Subject, register: Socket) {
    this.#settings = settings;
    this.#subject = subject;
    this.#register = register;
    this.#random = createRandom(settings.seed);
    this.#chooser = createOperationChooser(this.#random, settings.ttlMs);
    this.#startedAt = BigInt(settings.startedAt);
    createInterface({ input: register }).on("line", (line) => {
      const reply = JSON.parse(line) as RegisterReply;
      const id = operationId(reply);
      this.#replies.get(id)?.(reply);
      this.#replies.delete(id);
    });
  }

  /** Runs until stop(). */
  async run(): Promise<void> {
    const timer = setInterval(() => this.#report({ event: "runs", ...this.#stamp() }), RUNS_MS);
    await Promise.all(CALLERS.map((keySet, place) => this.#runCaller(keySet, place)));
    clearInterval(timer);
  }

  stop(): void {
    this.#isStopping = true;
  }

  /** Holds of long keys that begin soon last so long; what is granted much later must not keep others from their keys. */
  holdLong(ms: number): void {
    this.#round++;
    this.#longMs = ms;
    this.#longBefore = performance.now() + (ms === 0 ? 0 : this.#settings.ttlMs / 2);
  }

  async #runCaller(keySet: KeySet, place: number): Promise<void> {
    while (!this.#isStopping) {
      if (place >= this.#activeCallers) {
        await delay(BUSY_POLL_MS);
        continue;
      }
      await this.#keepPace(keySet);
      const hasFailed = await this.#perform({ op: this.#nextOperation++, ...this.#chooser.next(keySet) }, keySet);
      if (!hasFailed) continue;
      this.#activeCallers = Math.max(this.#activeCallers / 2, LEAST_CALLERS);
      // a store that cannot be reached is asked again after a pause
      await delay(this.#random.int(PAUSE_MS));
    }
  }

  /** Half of the requests are for each set, so that the many brief holds keep no long one waiting. */
  async #keepPace(keySet: KeySet): Promise<void> {
    const now = performance.now();
    const at = Math.max(this.#nextRequestAt[keySet] + 2_000 / this.#settings.requestsPerSecond, now - 100);
    this.#nextRequestAt[keySet] = at;
    if (at > now) await delay(at - now);
  }

  /** Never rejects. Resolves to whether it failed. */
  async #perform(operation: Operation, keySet: KeySet): Promise<boolean> {
    const { op } = operation;
    this.#report({ event: "invoke", ...this.#stamp(), ...operation });
    let hold: Hold | null;
    try {
      hold = await this.#subject.acquire(operation);
    } catch (error) {
      this.#onFailure(operation, error as Error);
      return true;
    }
    if (hold === null) {
      this.#report({ event: "refused", ...this.#stamp(), op, reason: "timeout" });
      return false;
    }
    this.#report({ event: "granted", ...this.#stamp(), op, tokens: hold.tokens });
    const lost = new AbortController();
    let isReleasing = false;
    hold.onLost((reason) => {
      if (isReleasing) return;
      this.#report({ event: "lost", ...this.#stamp(), op, reason });
      lost.abort();
    });
    if (this.#ask(op, hold)) await this.#hold(operation, keySet, hold, lost.signal);
    this.#ask(op, hold);
    this.#report({ event: "releasing", ...this.#stamp(), op });
    isReleasing = true;
    const askedAt = performance.now();
    const wasHeld = await hold.release().catch(() => null);
    const isFast = wasHeld !== null && performance.now() - askedAt < FAST_ANSWER_MS;
    this.#activeCallers += isFast && this.#activeCallers < CALLERS.length ? 0.1 : 0;
    this.#report({ event: "released", ...this.#stamp(), op, wasHeld });
    return false;
  }

  #onFailure({ op, kind }: Operation, error: Error): void {
    if (error.name === "UnsupportedError") {
      this.#chooser.exclude(kind);
      this.#report({ event: "unsupported", ...this.#stamp(), kind, reason: hideSecrets(error.message) });
      this.#report({ event: "refused", ...this.#stamp(), op, reason: "unsupported" });
      return;
    }
    const outcome = error.name === "StoreRefusedError" ? "refused" : "unknown";
    this.#report({ event: outcome, ...this.#stamp(), op, reason: hideSecrets(`${error.name}: ${error.message}`) });
  }

  /** Holds the lock for some time. */
  async #hold(operation: Operation, keySet: KeySet, hold: Hold, lost: AbortSignal): Promise<void> {
    const { op, keys, permits, limit } = operation;
    const isExclusive = permits === limit;
    const workMs = this.#chooseWorkMs(keySet);
    // each lock of the kernel costs a process, which takes longer than a brief hold; some of several permits exclude nothing
    const hasFile = keySet === "long" && (isExclusive || limit === null);
    const unlocks = hasFile ? await Promise.all(keys.map((key) => this.#lockFile(op, key, isExclusive, lost))) : [];
    try {
      await (isExclusive
        ? this.#useRegisters(operation, workMs, hold, lost)
        : this.#work(op, workMs, hold, lost, false));
    } finally {
      for (const unlock of unlocks) unlock();
    }
  }

  #chooseWorkMs(keySet: KeySet): number {
    if (keySet === "brief" || performance.now() > this.#longBefore) return this.#chooser.workMs(keySet);
    process.stdout.write("holding\n");
    return this.#longMs;
  }

  async #useRegisters({ op, keys }: Operation, workMs: number, hold: Hold, lost: AbortSignal): Promise<void> {
    // one that does not look learns of its loss from the register, if that looks at tokens
    const isBlind = this.#random.chance(0.5);
    const { worker } = this.#settings;
    const values = new Map<string, number>();
    for (const key of keys) {
      const reply = await this.#request({ event: "enter", worker, op, key, token: hold.tokens?.[key] ?? null });
      values.set(key, reply.value);
    }
    await this.#work(op, workMs, hold, lost, isBlind);
    for (const key of keys) {
      if (!isBlind && (lost.aborted || !this.#ask(op, hold))) return;
      const base = values.get(key) as number;
      await this.#request({ event: "write", worker, op, key, token: hold.tokens?.[key] ?? null, base });
    }
  }

  /** Sometimes for longer than a lease. One that looks stops when the lock is lost. */
  async #work(op: number, workMs: number, hold: Hold, lost: AbortSignal, isBlind: boolean): Promise<void> {
    const round = this.#round;
    const endsAt = performance.now() + workMs;
    for (let restMs = workMs; restMs > 0; restMs = endsAt - performance.now()) {
      if ((!isBlind && lost.aborted) || this.#round !== round) return;
      await delay(Math.min(restMs, QUESTION_MS));
      // at the end its caller asks: a second question would only make the history longer
      if (performance.now() < endsAt) this.#ask(op, hold);
    }
  }

  #ask(op: number, hold: Hold): boolean {
    const stamp = this.#stamp();
    const leftMs = hold.leftMs();
    this.#report({ event: "asked", ...stamp, op, leftMs: leftMs === null ? null : Math.max(leftMs, 0) });
    return leftMs === null || leftMs > 0;
  }

  /** The kernel's lock on the file of a key, without waiting; given back when the lock is lost, or by the result. */
  async #lockFile(op: number, key: string, isExclusive: boolean, lost: AbortSignal): Promise<() => void> {
    const descriptor = openSync(`${this.#settings.directory}/${key}.flock`, "a", 0o600);
    const result = await flock(descriptor, isExclusive ? "exclusive" : "shared").catch(() => "missing" as const);
    // after the answer: one that was stopped before it may come late, and find the lock of the next holder
    if (result !== "missing") this.#report({ event: "kernel", ...this.#stamp(), op, key, taken: result === "taken" });
    let isOpen = true;
    const unlock = (): void => {
      if (!isOpen) return;
      isOpen = false;
      closeSync(descriptor);
      if (result === "locked") this.#report({ event: "unlocked", ...this.#stamp(), op, key });
    };
    if (lost.aborted) unlock();
    else lost.addEventListener("abort", unlock, { once: true });
    return unlock;
  }

  #request(request: RegisterRequest): Promise<RegisterReply> {
    return new Promise((resolve) => {
      this.#replies.set(operationId(request), resolve);
      this.#register.write(`${JSON.stringify(request)}\n`);
    });
  }

  /** What was written is with the kernel when this returns, unless its buffer is full: so it survives the end of this process. */
  #report(event: WorkerEvent): void {
    this.#register.write(`${JSON.stringify(event)}\n`);
  }

  #stamp(): { readonly at: number; readonly worker: number } {
    return { at: Number((process.hrtime.bigint() - this.#startedAt) / 1_000n), worker: this.#settings.worker };
  }
}

/** Reads its settings and commands from standard input; exits at once when that ends, as when the torture was killed. */
export async function runWorker(openSubject: (settings: WorkerSettings) => Promise<Subject>): Promise<number> {
  const lines = createInterface({ input: process.stdin });
  const reader = lines[Symbol.asyncIterator]();
  const settings = JSON.parse((await reader.next()).value ?? "null") as WorkerSettings | null;
  if (settings === null) return 0;
  const commands: WorkerCommand[] = [];
  let worker: Worker | null = null;
  void (async () => {
    for await (const line of reader) {
      const command = JSON.parse(line) as WorkerCommand;
      if (worker === null) commands.push(command);
      else obey(worker, command);
    }
    process.exit(0);
  })();
  const subject = await openSubject(settings);
  const register = connect(settings.registerPath);
  worker = new Worker(settings, subject, register);
  for (const command of commands) obey(worker, command);
  process.stdout.write("ready\n");
  await worker.run();
  await subject.close();
  await new Promise<void>((resolve) => register.end(resolve));
  return 0;
}

function obey(worker: Worker, command: WorkerCommand): void {
  if (command.command === "stop") worker.stop();
  else if (command.command === "hold") worker.holdLong(command.ms);
  else if (command.command === "block") Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, command.ms);
  else moveClock(command.ms);
}

/** All that reads the wall clock in this process sees it, libraries too. */
function moveClock(ms: number): void {
  const RealDate = Date;
  const now = (): number => RealDate.now() + ms;
  globalThis.Date = new Proxy(RealDate, {
    construct: (target, parts) => Reflect.construct(target, parts.length === 0 ? [now()] : parts),
    get: (target, name, receiver) => (name === "now" ? now : Reflect.get(target, name, receiver)),
  });
}
