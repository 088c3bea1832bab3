/**
 * The resource that cached locks protect, in the test's own process: it refuses a token that is not above all earlier ones of its key.
 * Each section enters and leaves it. A process that was stopped inside a section cannot leave it, and when it continues it may be
 * late: that must be refused, and is no violation. A killed one is in no section any more.
 */

import { createServer } from "node:net";
import { createInterface } from "node:readline";
import type { ProcessHarness } from "./process-harness.ts";

/** A process that was stopped sends what it had begun when it continues. Milliseconds, on a busy machine. */
const CATCH_UP_MS = 2_000;

interface KeyState {
  /** The highest token of an accepted section. */
  token: bigint;
  /** The process of the last section. */
  owner: number;
  /** Whether that section has not ended. */
  isInside: boolean;
  enteredAt: number;
}

export class SectionRegister {
  readonly path: string;
  readonly violations: string[] = [];
  sections = 0;
  /** Sections of another process than the one before on that key. */
  ownerChanges = 0;
  /** Late requests of processes that had been stopped. */
  refused = 0;
  readonly #keys = new Map<string, KeyState>();
  /** Until when a process may be late; Infinity: it is stopped. */
  readonly #excusedUntil = new Map<number, number>();

  constructor(harness: ProcessHarness) {
    this.path = harness.path("register");
    const server = createServer((socket) => {
      socket.on("error", () => undefined);
      const lines = createInterface({ input: socket });
      lines.on("error", () => undefined); // its process was killed
      let pid = 0;
      lines.on("line", (line) => {
        const [verb, key = "", token = "", sender] = line.split(" ");
        pid = Number(sender);
        const isAccepted =
          verb === "enter" ? this.#enter(key, BigInt(token), pid) : this.#leave(key, BigInt(token), pid);
        socket.write(isAccepted ? "1\n" : "0\n");
      });
      socket.on("close", () => this.#onEnd(pid));
    });
    server.listen(this.path);
    harness.onTeardown(() => void server.close());
  }

  /** This process is about to be stopped or killed. */
  excuse(pid: number): void {
    this.#excusedUntil.set(pid, Number.POSITIVE_INFINITY);
  }

  /** Those that were stopped run again. */
  endExcuses(): void {
    for (const [pid, until] of this.#excusedUntil)
      if (until === Number.POSITIVE_INFINITY) this.#excusedUntil.set(pid, performance.now() + CATCH_UP_MS);
  }

  /** When the last section of a key began; 0: never. */
  lastEnteredAt(key: string): number {
    return this.#keys.get(key)?.enteredAt ?? 0;
  }

  /** The process of the last section of a key. */
  ownerOf(key: string): number | undefined {
    return this.#keys.get(key)?.owner;
  }

  #enter(key: string, token: bigint, pid: number): boolean {
    const last = this.#keys.get(key);
    if (last !== undefined) {
      if (token <= last.token)
        return this.#refuse(pid, `${pid} entered ${key} with ${token}, not above ${last.token} of ${last.owner}`);
      if (last.isInside && !this.#isExcused(last.owner))
        this.violations.push(`${pid} entered ${key} with ${token} while ${last.owner} was inside with ${last.token}`);
      if (last.owner !== pid) this.ownerChanges++;
    }
    this.sections++;
    this.#keys.set(key, { token, owner: pid, isInside: true, enteredAt: performance.now() });
    return true;
  }

  #leave(key: string, token: bigint, pid: number): boolean {
    const last = this.#keys.get(key);
    if (last === undefined || last.token !== token)
      return this.#refuse(pid, `${pid} left ${key} with ${token}, after ${last?.token}`);
    last.isInside = false;
    return true;
  }

  /** A process that has ended is in no section any more. */
  #onEnd(pid: number): void {
    for (const state of this.#keys.values()) if (state.owner === pid) state.isInside = false;
  }

  #refuse(pid: number, what: string): false {
    if (this.#isExcused(pid)) this.refused++;
    else this.violations.push(what);
    return false;
  }

  #isExcused(pid: number): boolean {
    const until = this.#excusedUntil.get(pid);
    return until !== undefined && performance.now() < until;
  }
}
