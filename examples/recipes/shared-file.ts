// One file that many processes read and write: readers together, a writer alone.

import { readFile, rename, writeFile } from "node:fs/promises";
import { connect } from "holdfast";

const file = process.argv[2] ?? "counter.json";
const locks = await connect();
const { read, write } = locks.rw("counter.json");

interface Counter {
  readonly count: number;
}

async function load(): Promise<Counter> {
  try {
    return JSON.parse(await readFile(file, "utf8")) as Counter;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return { count: 0 };
  }
}

export function show(): Promise<Counter> {
  return read.using({ wait: "10s" }, load);
}

export async function increment(): Promise<void> {
  // read and write under one lock: between two locks another process could write
  await write.using({ wait: "10s" }, async (lock) => {
    const { count } = await load();
    const next = `${file}.${lock.token}`;
    await writeFile(next, JSON.stringify({ count: count + 1 }));
    lock.throwIfLost();
    await rename(next, file); // whole, even for a reader that asks for no lock
  });
}

for (let time = 0; time < 10; time++) await increment();
console.log(`at least ${(await show()).count >= 10 ? 10 : "too few"}`);
await locks.close();
