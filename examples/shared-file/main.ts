// One file that many processes read and write: readers together, a writer alone, all in order of arrival. A write takes
// several steps, so a reader beside it would see half of it, and two writers beside each other would lose one's version.
// With --unlocked nobody asks for the lock, and that is what happens.

import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { ReaderReport } from "./reader-report.ts";

const [WRITERS, READERS, TIMES, LINES] = [3, 5, 10, 8];
const unlocked = process.argv.includes("--unlocked");
const folder = mkdtempSync(join(tmpdir(), "shared-file-"));
const file = join(folder, "document");
writeFileSync(file, "00\n".repeat(LINES));

const program = fileURLToPath(new URL(`./worker.child.js`, import.meta.url));
const startWorker = (role: "reader" | "writer"): ChildProcess =>
  fork(program, [role, file, String(TIMES), unlocked ? "unlocked" : "locked"]);
const workers = [
  ...Array.from({ length: WRITERS }, () => startWorker("writer")),
  ...Array.from({ length: READERS }, () => startWorker("reader")),
];
// all are connected before anybody begins
await Promise.all(workers.map((worker) => nextMessage(worker)));
for (const worker of workers) worker.send("go");
const reports = await Promise.all(workers.map((worker) => nextMessage<ReaderReport>(worker)));

const tornReads = reports.reduce((sum, readerReport) => sum + readerReport.tornReads, 0);
const version = readFileSync(file, "utf8").split("\n")[0];
console.log(`${WRITERS * TIMES} writes by ${WRITERS} processes: the file has version ${version}`);
console.log(`${READERS * TIMES} reads by ${READERS} processes: ${tornReads} of them saw half a write`);
console.log(
  `most readers at once: ${maxConcurrent(reports.flatMap((readerReport) => readerReport.reads)) > 1 ? "several" : "one"}`,
);
rmSync(folder, { recursive: true });

/** The next thing that it says. */
async function nextMessage<T>(worker: ChildProcess): Promise<T> {
  // what it said last may be heard after its exit, but not after the channel has ended
  const ended = once(worker, "disconnect").then(() => {
    throw new Error("a worker ended before it was done");
  });
  const [message] = await Promise.race([once(worker, "message"), ended]);
  ended.catch(() => undefined);
  return message as T;
}

function maxConcurrent(spans: readonly (readonly [number, number])[]): number {
  const steps = spans.flatMap(([from, to]) => [[from, 1] as const, [to, -1] as const]).sort(([a], [b]) => a - b);
  let [now, most] = [0, 0];
  for (const [, step] of steps) {
    now += step;
    most = Math.max(most, now);
  }
  return most;
}
