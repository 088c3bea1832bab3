/** A NATS server with JetStream, and a bucket on its disk. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { firstAnswer, startOnFreePort } from "../processes/database-process.ts";
import { systemProgram, versionOf } from "./programs.ts";
import type { StartedStore } from "./started-store.ts";
import { injectInto } from "./store-process.ts";

export async function startNats(directory: string): Promise<StartedStore> {
  const program = systemProgram("nats-server");
  const version = versionOf(program, ["--version"]);
  const config = join(directory, "nats.conf");
  const { port, process: server } = await startOnFreePort((port) => {
    const storage = `jetstream: { store_dir: ${JSON.stringify(join(directory, "nats"))} }`;
    writeFileSync(config, `listen: "127.0.0.1:${port}"\n${storage}\n`);
    return {
      name: "NATS",
      command: [program, "-c", config],
      log: join(directory, "log"),
      environment: {},
      stopSignal: "SIGTERM",
      faults: /\[FTL\]/g,
      isReady: async () => (await firstAnswer(port, new Uint8Array())).toString().startsWith("INFO"),
    };
  });
  return {
    name: `NATS ${version}`,
    url: `nats://127.0.0.1:${port}?bucket=locks`,
    ttlMs: 2_000,
    inject: injectInto(server),
    close: () => server.crash(),
  };
}
