// One of the readers or writers.

import { once } from "node:events";
import { open, readFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { connect } from "holdfast";
import type { ReaderReport } from "./reader-report.ts";

const [role, file = "", times, locking] = process.argv.slice(2);
// a lock is ours as long as this process lives and is connected
const locks = await connect(process.env.HOLDFAST_URL, { ttl: "session" });
const { read, write } = locks.rw("shared-file");
const reads: [number, number][] = [];
let tornReads = 0;

/** Reads the file in two steps, and looks whether it was the same file in both. */
async function readTwice(): Promise<void> {
  const startedAt = Date.now();
  const before = await readFile(file, "utf8");
  await delay(2);
  const after = await readFile(file, "utf8");
  if (new Set([...before.split("\n"), ...after.split("\n")]).size > 2) tornReads++;
  reads.push([startedAt, Date.now()]);
}

/** Writes the next version, a line at a time. */
async function writeNext(): Promise<void> {
  const lines = (await readFile(file, "utf8")).trimEnd().split("\n");
  const next = String(Number(lines[0]) + 1);
  await delay(5); // the work between reading and writing, in which another writer without the lock reads the same version
  const handle = await open(file, "r+");
  try {
    let index = 0;
    for (const line of lines) {
      await handle.write(`${next}\n`.padStart(line.length + 1, "0"), index);
      index += line.length + 1;
      await delay(0);
    }
  } finally {
    await handle.close();
  }
}

const [lockable, work] = role === "reader" ? [read, readTwice] : [write, writeNext];
process.send?.("ready");
await once(process, "message");
for (let time = 0; time < Number(times); time++) {
  if (locking === "unlocked") await work();
  else await lockable.using(work);
}
process.send?.({ tornReads, reads } satisfies ReaderReport);
await locks.close();
process.disconnect();
