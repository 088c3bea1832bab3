/** A Redis server that writes each change to its disk before it answers: redis-server of the system. */

import { execFileSync } from "node:child_process";
import { connect } from "node:net";
import type { StartedStore } from "./started-store.ts";
import { freePort, StoreProcess } from "./store-process.ts";

export async function startRedis(directory: string): Promise<StartedStore> {
  const version = /v=([\d.]+)/.exec(execFileSync("redis-server", ["--version"], { encoding: "utf8" }))?.[1] ?? "";
  const port = await freePort();
  const server = new StoreProcess({
    command: [
      ...(["redis-server", "--port", String(port), "--bind", "127.0.0.1", "--dir", directory] as const),
      ...["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--loglevel", "warning"],
    ],
    isReady: () => answersPing(port),
  });
  await server.start();
  return {
    name: `Redis ${version}`,
    url: `redis://127.0.0.1:${port}`,
    ttlMs: 1_000,
    inject: (fault) => server.inject(fault),
    close: () => server.close(),
  };
}

/** Not while it loads its data. */
function answersPing(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: "127.0.0.1", port });
    socket.once("connect", () => socket.write("PING\r\n"));
    socket.once("data", (reply) => {
      resolve(reply.toString().startsWith("+PONG"));
      socket.destroy();
    });
    socket.once("error", () => resolve(false));
    socket.setTimeout(1_000, () => socket.destroy());
    socket.once("close", () => resolve(false));
  });
}
