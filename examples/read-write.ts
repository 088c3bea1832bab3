// Many readers or one writer, in order of arrival: a writer waits for the readers before it, and readers that come after
// a writer wait for it, so nobody starves.

import { setTimeout as delay } from "node:timers/promises";
import { connect } from "holdfast";

const locks = await connect();
const { read, write } = locks.rw("config");

let config = { version: 1 };
let reading = 0;
let most = 0;

async function load(name: string): Promise<void> {
  await read.using(async () => {
    most = Math.max(most, ++reading);
    await delay(20);
    console.log(`${name} reads version ${config.version}`);
    reading--;
  });
}

async function save(): Promise<void> {
  await write.using(async () => {
    console.log(`writing, with ${reading} readers beside`);
    await delay(20);
    config = { version: config.version + 1 };
  });
}

await Promise.all([load("one"), load("two"), load("three"), save(), load("four")]);
console.log(`most readers at once: ${most}`);
await locks.close();
