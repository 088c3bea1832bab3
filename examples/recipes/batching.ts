// A journal that many callers write in batches, and that one of them now and then rewrites.

import { readFile, writeFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import DataLoader from "dataloader";
import { connect, withoutCurrentLock } from "holdfast";

const [, , path = "journal.txt"] = process.argv;
const locks = await connect();

async function append(entries: readonly string[]): Promise<void> {
  const text = await readFile(path, "utf8").catch(() => "");
  await writeFile(path, text + entries.map((entry) => `${entry}\n`).join(""));
}

/** A batch runs in the async context of the call that began it, for all calls of the same turn. */
const journal = new DataLoader<string, null>(
  (entries) =>
    withoutCurrentLock(() =>
      locks.using("journal", { wait: "10s" }, async () => {
        await append(entries);
        return entries.map(() => null);
      }),
    ),
  { cache: false },
);

async function compact(): Promise<void> {
  let logged: Promise<unknown> | undefined;
  await locks.using("journal", async () => {
    const lines = (await readFile(path, "utf8")).trimEnd().split("\n");
    logged = journal.load("compacted"); // to await it here would be to wait for this lock
    await delay(50);
    await writeFile(path, `${[...new Set(lines)].join("\n")}\n`); // would undo what a joined batch had written
  });
  await logged;
}

await Promise.all(["paid 41", "paid 42", "paid 42"].map((entry) => journal.load(entry)));
await Promise.all([compact(), journal.load("paid 43")]);
console.log((await readFile(path, "utf8")).trimEnd().split("\n").sort().join(", "));
await locks.close();
