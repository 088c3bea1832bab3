// Start it twice: the second build ends the first one, and begins when that has cleaned up.

import { setTimeout as delay } from "node:timers/promises";
import type { Lock } from "holdfast";
import { connect, LockLostError } from "holdfast";

const locks = await connect(undefined, { ttl: "5s" });
const commit = process.argv[2] ?? "main";

async function build(lock: Lock): Promise<void> {
  console.log(`building ${commit}`);
  try {
    await delay(3_000, undefined, { signal: lock.signal });
    console.log(`built ${commit}`);
  } catch (error) {
    if (!lock.signal.aborted) throw error;
    console.log(`cleaned up after ${commit}`); // the next build waits for this
  }
}

try {
  await locks.using("build:site", { replace: true, wait: "1m", label: `build of ${commit}` }, build);
} catch (error) {
  if (!(error instanceof LockLostError)) throw error;
  console.log(`${commit} was replaced: ${error.reason}`);
}
await locks.close();
