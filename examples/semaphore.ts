// At most so many at once, over all processes: here four permits, of which a large job takes two.

import { setTimeout as delay } from "node:timers/promises";
import { connect } from "holdfast";

const locks = await connect();
const gpus = locks.semaphore("gpu", 4);

let busy = 0;
let most = 0;

async function job(name: string, permits: number): Promise<void> {
  await gpus.using({ permits }, async () => {
    busy += permits;
    most = Math.max(most, busy);
    await delay(20);
    console.log(`${name} done`);
    busy -= permits;
  });
}

await Promise.all([job("large", 2), ...["a", "b", "c", "d", "e"].map((name) => job(name, 1))]);
console.log(`most permits out at once: ${most}`);
await locks.close();
