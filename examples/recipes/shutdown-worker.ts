// On SIGTERM the running order is finished under its lock, and no other is begun.

import { setTimeout as delay } from "node:timers/promises";
import { ClosedError, closeOnSignal, connect } from "holdfast";

const locks = await connect(undefined, { drain: "20s" }); // less than the grace period of the platform
closeOnSignal(locks);

async function pack(order: number, hurry: AbortSignal): Promise<void> {
  for (let item = 1; item <= 3; item++) {
    console.log(`order ${order}: item ${item}`);
    await delay(hurry.aborted ? 50 : 500); // leave out what can wait
  }
  console.log(`order ${order} is packed`);
}

try {
  for (let order = 1; ; order++) await locks.using(`order:${order % 10}`, (lock) => pack(order, lock.closing));
} catch (error) {
  if (!(error instanceof ClosedError)) throw error; // the locks are closing: the loop ends
}
