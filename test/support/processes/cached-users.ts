/** Processes that use cached locks on a few keys (cached-user.child.ts). */

import type { Random } from "../../../src/testing/random.ts";
import { builtFile } from "../built-file.ts";
import type { ProcessHarness, RunningProcess } from "./process-harness.ts";
import type { SectionRegister } from "./section-register.ts";

const PROGRAM = builtFile("build/test/support/processes/cached-user.child.js");

export interface UserSettings {
  readonly url: string;
  readonly registerPath: string;
  readonly keys: readonly string[];
  readonly ttl: `${number}s`;
  readonly cache: `${number}s`;
  readonly usersPerKey: number;
  /** Of one user: the most sections in a row, and the longest pause after them. */
  readonly sectionsPerTurn: number;
  readonly pauseMs: number;
}

export interface CachedUsers {
  /** A process: mostly one that has used a key last. */
  pickVictim(): RunningProcess | null;
  /** Ends the processes; settles when they have given all locks back. */
  finish(): Promise<void>;
  /** What the processes said that have failed. */
  faults(): readonly string[];
  /** Replaces none that ends from now on. */
  stop(): void;
}

/** So many processes at any time: one that was killed is replaced. */
export function startCachedUsers(
  harness: ProcessHarness,
  count: number,
  random: Random,
  register: SectionRegister,
  settings: Omit<UserSettings, "registerPath">,
): CachedUsers {
  const running = new Set<RunningProcess>();
  const faults: string[] = [];
  let isOver = false;

  async function keepOne(): Promise<void> {
    while (!isOver) {
      const program = harness.startProgram(
        [process.execPath, PROGRAM, JSON.stringify({ ...settings, registerPath: register.path })],
        { input: true },
      );
      program.process.stdin?.on("error", () => undefined);
      running.add(program);
      const { code, signal } = await program.ended;
      running.delete(program);
      if (code === 0 || signal === "SIGKILL") continue;
      faults.push(`a process ended with ${signal ?? code}: ${program.err()}`);
      return;
    }
  }

  const processes = Array.from({ length: count }, keepOne);
  return {
    pickVictim() {
      const owners = settings.keys.map((key) => register.ownerOf(key));
      const all = [...running].filter((one) => one.out().includes("ready"));
      const inUse = all.filter(({ pid }) => owners.includes(pid));
      const candidates = inUse.length > 0 && random.chance(0.8) ? inUse : all;
      if (candidates.length === 0) return null;
      const victim = random.pick(candidates as [RunningProcess, ...RunningProcess[]]);
      register.excuse(victim.pid);
      return victim;
    },
    async finish() {
      isOver = true;
      for (const { process: child } of running) child.stdin?.end();
      await Promise.all(processes);
    },
    faults: () => faults,
    stop() {
      isOver = true;
    },
  };
}
