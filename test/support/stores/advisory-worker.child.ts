/**
 * A process with many callers who take one lock in turn. Inside, each counts itself in a row of the database; what the row
 * says then is the proof: 1, or two were inside.
 *   node advisory-worker.child.js <url of the locks> <url of the database> <callers> <turns of each>
 */

import { connect } from "../../../src/index.ts";
import type { DatabaseClient } from "./advisory-counter.ts";
import { openCounter } from "./advisory-counter.ts";

const [url = "", databaseUrl = "", callers = "1", turns = "1"] = process.argv.slice(2);
const counter: DatabaseClient = await openCounter(databaseUrl);
const locks = await connect(url, { order: "strict" });
let overlaps = 0;

async function takeTurns(): Promise<void> {
  for (let turn = 0; turn < Number(turns); turn++) {
    await locks.using("contended", async () => {
      if ((await counter.enter()) !== 1) overlaps++;
      await counter.leave();
    });
  }
}

await Promise.all(Array.from({ length: Number(callers) }, takeTurns));
await locks.close();
await counter.close();
process.stdout.write(JSON.stringify({ overlaps }));
