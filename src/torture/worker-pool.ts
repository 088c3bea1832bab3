/** The workers of a run: child processes of this command. One that was killed is replaced, and one whose library has ended it. */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import type { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { hideSecrets } from "./hide-secrets.ts";
import type { NemesisEvent } from "./history.ts";
import type { ChildCommand } from "./processes/child-command.ts";
import { endWithParent } from "./processes/end-with-parent.ts";
import type { WorkerCommand, WorkerSettings } from "./worker.ts";

const READY_POLL_MS = 20;

export interface RunningWorker {
  readonly worker: number;
  /** Its place, which it inherits from the worker that it replaces: with it a proxy. */
  readonly place: number;
  readonly child: ChildProcess;
  /** It has started to take locks. */
  isReady: boolean;
  isStopped: boolean;
}

export interface WorkerPoolOptions {
  readonly command: ChildCommand;
  readonly places: number;
  /** Further variables of their environment. */
  readonly environment?: Readonly<Record<string, string>>;
  settingsOf(worker: number, place: number): WorkerSettings;
  report(event: NemesisEvent): void;
  now(): number;
}

export class WorkerPool {
  readonly #options: WorkerPoolOptions;
  readonly #running = new Map<number, RunningWorker>();
  readonly #ends = new Set<Promise<void>>();
  #count = 0;
  #isOver = false;
  /** Places whose workers have ended while all are being killed; null: those are filled again at once. */
  #emptied: number[] | null = null;

  constructor(options: WorkerPoolOptions) {
    this.#options = options;
    for (let place = 0; place < options.places; place++) this.#start(place);
  }

  /** Those that take locks, and that no fault has stopped. */
  get candidates(): readonly RunningWorker[] {
    return [...this.#running.values()].filter(({ isReady, isStopped }) => isReady && !isStopped);
  }

  /** Settles when all take locks, after this time, or at the end of the run: a fault that strikes earlier shows nothing. */
  async whenReady(withinMs: number, signal: AbortSignal): Promise<void> {
    const endsAt = performance.now() + withinMs;
    const isOver = (): boolean => signal.aborted || performance.now() >= endsAt;
    while (this.candidates.length < this.#options.places && !isOver()) await delay(READY_POLL_MS);
  }

  /** All that run, stopped ones too. */
  at(places: readonly number[]): number[] {
    return [...this.#running.values()].flatMap(({ place, worker }) => (places.includes(place) ? [worker] : []));
  }

  /** Lets a worker hold locks for so long. Settles when it has begun to hold one, or after this time. */
  async holdLong(worker: RunningWorker, ms: number, withinMs: number): Promise<void> {
    const holding = once(worker.child.stdout as Readable, "data", { signal: AbortSignal.timeout(withinMs) });
    this.send(worker, { command: "hold", ms });
    await holding.catch(() => undefined);
  }

  kill(worker: RunningWorker): void {
    if (!this.#running.has(worker.worker)) return;
    this.#report(worker, "killed", "");
    worker.child.kill("SIGKILL");
  }

  /** Kills all at once by this function, which gets their process ids; others take their places when it has ended. */
  async replaceAll<T>(kill: (pids: readonly number[]) => Promise<T>): Promise<T> {
    const emptied: number[] = [];
    this.#emptied = emptied;
    const all = [...this.#running.values()];
    for (const worker of all) this.#report(worker, "killed", "");
    try {
      return await kill(all.flatMap(({ child }) => child.pid ?? []));
    } finally {
      this.#emptied = null;
      for (const place of emptied) this.#start(place);
    }
  }

  stop(worker: RunningWorker): void {
    worker.isStopped = true;
    worker.child.kill("SIGSTOP");
  }

  proceed(worker: RunningWorker): void {
    worker.isStopped = false;
    worker.child.kill("SIGCONT");
  }

  send({ child }: RunningWorker, command: WorkerCommand): void {
    child.stdin?.write(`${JSON.stringify(command)}\n`);
  }

  /** Lets all workers end what they do. Those that have not within this time are killed, and reported. */
  async finish(withinMs: number): Promise<void> {
    this.#isOver = true;
    for (const worker of this.#running.values()) this.send(worker, { command: "stop" });
    const timer = setTimeout(() => {
      for (const worker of this.#running.values()) {
        this.#report(worker, "ended", "it did not end when it was told to");
        worker.child.kill("SIGKILL");
      }
    }, withinMs);
    await Promise.all(this.#ends);
    clearTimeout(timer);
  }

  /** Ends all workers at once. */
  async abort(): Promise<void> {
    this.#isOver = true;
    for (const { child } of this.#running.values()) child.kill("SIGKILL");
    await Promise.all(this.#ends);
  }

  #start(place: number): void {
    const worker = this.#count++;
    // also one that is stopped, when torture itself is killed; and Ctrl-C of a terminal reaches torture alone
    const [program = "", ...args] = endWithParent(this.#options.command);
    const env = { ...process.env, ...this.#options.environment };
    const child = spawn(program, args, { stdio: ["pipe", "pipe", "pipe"], detached: true, env });
    const running: RunningWorker = { worker, place, child, isReady: false, isStopped: false };
    this.#running.set(worker, running);
    child.stdin?.on("error", () => undefined);
    child.stdin?.write(`${JSON.stringify(this.#options.settingsOf(worker, place))}\n`);
    child.stdout?.once("data", () => {
      running.isReady = true;
    });
    let errorText = "";
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      errorText = (errorText + text).slice(-2_000);
    });
    const ended = once(child, "close").then(([code, signal]) => {
      this.#running.delete(worker);
      this.#ends.delete(ended);
      const wasKilled = signal === "SIGKILL";
      if (!wasKilled)
        this.#report(running, "ended", code === 0 ? "" : hideSecrets(`code ${code ?? signal}: ${errorText.trim()}`));
      // one that cannot even start would be started again and again
      if (this.#isOver || !(wasKilled || running.isReady)) return;
      if (this.#emptied === null) this.#start(place);
      else this.#emptied.push(place);
    });
    this.#ends.add(ended);
    this.#report(running, "started", "");
  }

  #report({ worker, child }: RunningWorker, phase: "started" | "killed" | "ended", reason: string): void {
    const at = this.#options.now();
    this.#options.report({ event: "worker", at, worker, pid: child.pid ?? 0, phase, reason });
  }
}
