/** A wall clock for a server of a test, which is moved while the server runs (clock-shim.c). */

import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const COMPILER = "cc";

export interface ShiftedClock {
  /** Variables of the server's environment. */
  readonly environment: Readonly<Record<string, string>>;
  /** From now on it is so many milliseconds ahead of this machine's clock; less than 0: behind. */
  shift(byMs: number): void;
  /** From now on it stands still, so many microseconds after the beginning of 1970. */
  freeze(atMicros: number): void;
  /** Once the server has ended. */
  dispose(): void;
}

/** Why there can be none here; null if there can. */
export function shiftedClockUnavailableReason(): string | null {
  const isBuilt = process.platform === "linux" && spawnSync(COMPILER, ["--version"], { stdio: "ignore" }).status === 0;
  return isBuilt ? null : "no C compiler on Linux";
}

export function createShiftedClock(): ShiftedClock {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-clock-"));
  const [library, offset] = [join(folder, "shim.so"), join(folder, "offset")];
  const source = resolve("test/support/clock-shim.c");
  const built = spawnSync(COMPILER, ["-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"]);
  if (built.status !== 0) throw new Error(`${COMPILER}: ${String(built.stderr)}`);
  writeFileSync(offset, Buffer.alloc(16));
  // PostgreSQL runs as another user
  chmodSync(folder, 0o755);
  // in place: the server has the file mapped
  const set = (offsetMicros: bigint, frozenMicros: bigint): void => {
    const bytes = Buffer.alloc(16);
    bytes.writeBigInt64LE(offsetMicros, 0);
    bytes.writeBigInt64LE(frozenMicros, 8);
    writeFileSync(offset, bytes, { flag: "r+" });
  };
  return {
    environment: { LD_PRELOAD: library, HOLDFAST_CLOCK_SHIM: offset },
    shift: (byMs) => set(BigInt(byMs) * 1_000n, 0n),
    freeze: (atMicros) => set(0n, BigInt(atMicros)),
    dispose: () => rmSync(folder, { recursive: true, force: true }),
  };
}
