// A process that makes many nodes at once with one of the clients.

import type { CreatesNodes } from "../contestants/zookeeper-clients.ts";
import { openClient } from "../contestants/zookeeper-clients.ts";
import { answerCalls } from "./calls.ts";

const [name = "", address = ""] = process.argv.slice(2);
const folder = `/creates-${process.pid}`;
let opened: Promise<CreatesNodes> | null = null;

async function open(): Promise<CreatesNodes> {
  const client = await openClient(name, address);
  await client.folder(folder);
  return client;
}

answerCalls({
  /** All of them asked for at once: milliseconds until the last is made, and microseconds of CPU. */
  creates: async (count: number): Promise<{ readonly ms: number; readonly cpu: number }> => {
    opened ??= open();
    const client = await opened;
    const cpuBefore = process.cpuUsage();
    const began = performance.now();
    const paths = await Promise.all(Array.from({ length: count }, () => client.create(`${folder}/n-`)));
    const ms = performance.now() - began;
    const { user, system } = process.cpuUsage(cpuBefore);
    await Promise.all(paths.map((path) => client.remove(path)));
    return { ms, cpu: user + system };
  },
});
