// One of the processes of lock-loop.ts.

import { once } from "node:events";
import { openSync, writeSync } from "node:fs";
import { connect } from "holdfast";

const [url, times, grants = ""] = process.argv.slice(2);
const locks = await connect(url);
const file = openSync(grants, "a");
process.send?.("ready");
await once(process, "message");
for (let time = 0; time < Number(times); time++) {
  const lock = await locks.acquire("the one lock");
  writeSync(file, `${lock.token}\n`);
  await lock.release();
}
process.send?.("done");
await locks.close();
process.disconnect();
