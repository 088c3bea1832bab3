// Many readers or one writer, in order of arrival: a writer waits for the readers before it, and readers that come after
// a writer wait for it, so nobody starves.

import { setTimeout as delay } from "node:timers/promises";
import { connect } from "holdfast";

const locks = await connect();
const { read, write } = locks.rw("config");

let config = { version: 1 };
let activeReaders = 0;
let maxReaders = 0;

async function loadConfig(name: string): Promise<void> {
  await read.using(async () => {
    maxReaders = Math.max(maxReaders, ++activeReaders);
    await delay(20);
    console.log(`${name} reads version ${config.version}`);
    activeReaders--;
  });
}

async function saveConfig(): Promise<void> {
  await write.using(async () => {
    console.log(`writing, with ${activeReaders} readers beside`);
    await delay(20);
    config = { version: config.version + 1 };
  });
}

await Promise.all([loadConfig("one"), loadConfig("two"), loadConfig("three"), saveConfig(), loadConfig("four")]);
console.log(`most readers at once: ${maxReaders}`);
await locks.close();
