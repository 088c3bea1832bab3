// Five requests for one report come at once: one runs, two wait, and two are told to come later.

import { setTimeout as delay } from "node:timers/promises";
import { connect, QueueFullError } from "holdfast";

const locks = await connect();

const render = locks.wrap("report:#{id}", { maxQueue: 2, wait: "10s" }, async (id: string, request: number) => {
  await delay(200);
  return `request ${request}: report ${id}`;
});

async function answer(request: number): Promise<string> {
  try {
    return await render("sales", request);
  } catch (error) {
    if (!(error instanceof QueueFullError)) throw error;
    return `request ${request}: 503, ${error.waiting} are waiting`;
  }
}

const first = answer(1);
await delay(100); // it has the lock
for (const text of await Promise.all([first, ...[2, 3, 4, 5].map(answer)])) console.log(text);
await locks.close();
