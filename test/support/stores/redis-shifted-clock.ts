/** A real Redis whose wall clock can be moved while it runs (test/support/clock-shim.c). */

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { RedisServer } from "./redis.ts";
import { redisUnavailableReason, startRedis } from "./redis.ts";

const COMPILER = "cc";

export interface ShiftedClockRedis extends RedisServer {
  /** From now on its clock is so many milliseconds ahead of this machine's; less than 0: behind. */
  shift(byMs: number): void;
  /** From now on its clock stands still, so many microseconds after the beginning of 1970. */
  freeze(atMicros: number): void;
}

/** Why there can be none here; null if there can. */
export function shiftedClockUnavailableReason(): string | null {
  const isBuilt = process.platform === "linux" && spawnSync(COMPILER, ["--version"], { stdio: "ignore" }).status === 0;
  return redisUnavailableReason() ?? (isBuilt ? null : "no C compiler on Linux");
}

export async function startShiftedClockRedis(settings: readonly string[] = []): Promise<ShiftedClockRedis> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-clock-"));
  const [library, offset] = [join(folder, "shim.so"), join(folder, "offset")];
  const source = resolve("test/support/clock-shim.c");
  const built = spawnSync(COMPILER, ["-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"]);
  if (built.status !== 0) throw new Error(`${COMPILER}: ${String(built.stderr)}`);
  writeFileSync(offset, Buffer.alloc(16));
  // in place: the server has the file mapped
  const set = (offsetMicros: bigint, frozenMicros: bigint): void => {
    const bytes = Buffer.alloc(16);
    bytes.writeBigInt64LE(offsetMicros, 0);
    bytes.writeBigInt64LE(frozenMicros, 8);
    writeFileSync(offset, bytes, { flag: "r+" });
  };
  const server = await startRedis(settings, { LD_PRELOAD: library, HOLDFAST_CLOCK_SHIM: offset });
  return {
    ...server,
    shift: (byMs) => set(BigInt(byMs) * 1_000n, 0n),
    freeze: (atMicros) => set(0n, BigInt(atMicros)),
    async stop() {
      await server.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
