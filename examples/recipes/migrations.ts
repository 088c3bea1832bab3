// Migrations at deploy: every new instance calls this before it serves. One of them migrates; the others wait, and find it done.

import { readFile, writeFile } from "node:fs/promises";
import { connect } from "holdfast";

// where your tool keeps what it has applied: a table of the database
const applied = process.argv[2] ?? "applied.json";
const migrations = ["001-orders", "002-invoices", "003-index"];

const locks = await connect();

await locks.using("migrations:shop", { wait: "10m", ttl: "30s" }, async (lock) => {
  const done = JSON.parse(await readFile(applied, "utf8").catch(() => "[]")) as string[];
  // asked under the lock: another instance may have migrated while this one waited
  for (const name of migrations.filter((one) => !done.includes(one))) {
    lock.throwIfLost(); // before each step that cannot be taken back
    console.log(`applying ${name}`);
    done.push(name);
    await writeFile(applied, JSON.stringify(done)); // in the transaction of the migration itself
  }
});

console.log("up to date");
await locks.close();
