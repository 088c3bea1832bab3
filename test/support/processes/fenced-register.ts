/**
 * The resource that locks protect, in the test's own process, so that its log is the one order of all effects. Fenced: it
 * refuses a token lower than the highest it has seen of that key.
 */

import { createServer } from "node:net";
import { createInterface } from "node:readline";
import type { FenceGuard } from "../../../src/fencing/index.ts";
import { createFenceGuard, StaleLockError } from "../../../src/fencing/index.ts";
import type { ProcessHarness } from "./process-harness.ts";

export type Effect = {
  readonly what: "enter" | "leave" | "write";
  readonly key: string;
  readonly token: bigint;
  readonly pid: number;
  readonly accepted: boolean;
  /** By the monotonic clock that all processes share. */
  readonly at: bigint;
};

export type FencedRegister = {
  readonly path: string;
  readonly log: readonly Effect[];
  /** What must not have happened: two inside one key, a token that did not rise. */
  faults(): string[];
};

/** Opens one; it is closed when the test has ended. */
export async function openFencedRegister(harness: ProcessHarness): Promise<FencedRegister> {
  const path = harness.path("register");
  const log: Effect[] = [];
  const guard = createFenceGuard();
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    const lines = createInterface({ input: socket });
    // a worker was killed
    lines.on("error", () => undefined);
    lines.on("line", (line) => {
      const {
        what,
        key,
        token: text,
        pid,
      } = JSON.parse(line) as Record<"what" | "key" | "token", string> & { pid: number };
      const token = BigInt(text);
      const accepted = isAccepted(guard, key, token);
      log.push({ what: what as Effect["what"], key, token, pid, accepted, at: process.hrtime.bigint() });
      socket.write(accepted ? "accepted\n" : "refused\n");
    });
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  harness.onTeardown(() => void server.close());
  return { path, log, faults: () => findFaults(log) };
}

function isAccepted(guard: FenceGuard, key: string, token: bigint): boolean {
  try {
    guard.check(key, token);
    return true;
  } catch (error) {
    if (error instanceof StaleLockError) return false;
    throw error;
  }
}

function findFaults(log: readonly Effect[]): string[] {
  const faults: string[] = [];
  const activeEffects = new Map<string, Effect>();
  const highest = new Map<string, bigint>();
  for (const effect of log) {
    const { what, key, token, pid } = effect;
    if (what === "enter") {
      const otherEffect = activeEffects.get(key);
      if (otherEffect !== undefined)
        faults.push(
          `${pid} entered ${key} with ${token} while ${otherEffect.pid} was inside with ${otherEffect.token}`,
        );
      if (token <= (highest.get(key) ?? 0n))
        faults.push(`${pid} entered ${key} with ${token}, not above ${highest.get(key)}`);
      highest.set(key, token);
      activeEffects.set(key, effect);
    }
    if (what === "leave" && activeEffects.get(key)?.pid === pid) activeEffects.delete(key);
  }
  return faults;
}
