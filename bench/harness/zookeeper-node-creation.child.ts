// A process that makes many nodes at once with one of the clients.

import type { NodeCreator } from "../implementations/zookeeper-clients.ts";
import { openClient } from "../implementations/zookeeper-clients.ts";
import { serveCalls } from "./child-rpc.ts";

const [name = "", address = ""] = process.argv.slice(2);
const folder = `/creates-${process.pid}`;
let creator: Promise<NodeCreator> | null = null;

async function openCreator(): Promise<NodeCreator> {
  const client = await openClient(name, address);
  await client.folder(folder);
  return client;
}

serveCalls({
  /** All of them asked for at once: milliseconds until the last is made, and microseconds of CPU. */
  creates: async (count: number): Promise<{ readonly ms: number; readonly cpu: number }> => {
    creator ??= openCreator();
    const client = await creator;
    const cpuBefore = process.cpuUsage();
    const startedAt = performance.now();
    const paths = await Promise.all(Array.from({ length: count }, () => client.create(`${folder}/n-`)));
    const ms = performance.now() - startedAt;
    const { user, system } = process.cpuUsage(cpuBefore);
    await Promise.all(paths.map((path) => client.remove(path)));
    return { ms, cpu: user + system };
  },
});
