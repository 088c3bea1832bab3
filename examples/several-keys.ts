// Several keys at once. They are taken in one order everywhere, so transfers back and forth never deadlock.

import { setTimeout as delay } from "node:timers/promises";
import { connect } from "holdfast";

const locks = await connect();
const balances = new Map([
  ["ana", 100],
  ["ben", 100],
  ["eva", 100],
]);

async function transfer(from: string, to: string, amount: number): Promise<void> {
  await locks.all(`account:${from}`, `account:${to}`).using(async (lock) => {
    const [source, target] = [balances.get(from) ?? 0, balances.get(to) ?? 0];
    if (source < amount) return;
    await delay(2); // a database would be asked here: without the lock, updates would get lost
    lock.throwIfLost();
    balances.set(from, source - amount);
    balances.set(to, target + amount);
  });
}

const names = [...balances.keys()];
const transfers = names.flatMap((from) => names.filter((to) => to !== from).map((to) => transfer(from, to, 10)));
await Promise.all([...transfers, transfer("ana", "ben", 5)]);
console.log([...balances].map(([name, balance]) => `${name} ${balance}`).join(", "));
await locks.close();
