// At most so many at once, over all processes: here four permits, of which a large job takes two.

import { setTimeout as delay } from "node:timers/promises";
import { connect } from "holdfast";

const locks = await connect();
const gpus = locks.semaphore("gpu", 4);

let busyCount = 0;
let maxBusy = 0;

async function runJob(name: string, permits: number): Promise<void> {
  await gpus.using({ permits }, async () => {
    busyCount += permits;
    maxBusy = Math.max(maxBusy, busyCount);
    await delay(20);
    console.log(`${name} done`);
    busyCount -= permits;
  });
}

await Promise.all([runJob("large", 2), ...["a", "b", "c", "d", "e"].map((name) => runJob(name, 1))]);
console.log(`most permits out at once: ${maxBusy}`);
await locks.close();
