/** A NATS server with JetStream, and a bucket on its disk. */

import { writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { firstAnswer, startOnFreePort } from "../processes/database-process.ts";
import { systemProgram, versionOf } from "./programs.ts";
import type { StartedStore, StoreSetup } from "./started-store.ts";
import { injectIntoServer } from "./store-process.ts";

const BUCKET = "locks";
/** As clients of NATS make a bucket: the last value of each key, and nothing is discarded in silence. */
const STREAM = {
  ...{ name: `KV_${BUCKET}`, subjects: [`$KV.${BUCKET}.>`], storage: "file", retention: "limits", num_replicas: 1 },
  ...{ max_msgs_per_subject: 1, discard: "new", allow_rollup_hdrs: true, deny_delete: true, allow_direct: true },
};

export async function startNats({ directory }: StoreSetup): Promise<StartedStore> {
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
  await createBucket(port);
  const name = `NATS ${version}`;
  return {
    ...{ name, url: `nats://127.0.0.1:${port}?bucket=${BUCKET}` },
    faults: ["store-kill", "store-restart", "store-pause"],
    inject: injectIntoServer(name, server),
    close: () => server.crash(),
  };
}

/** @throws Error with the server's answer if it refuses */
async function createBucket(port: number): Promise<void> {
  const payload = JSON.stringify(STREAM);
  const request = `PUB $JS.API.STREAM.CREATE.${STREAM.name} reply ${Buffer.byteLength(payload)}\r\n${payload}\r\n`;
  const socket = connect(port, "127.0.0.1");
  socket.write(`CONNECT {"verbose":false}\r\nSUB reply 1\r\n${request}`);
  let text = "";
  for await (const chunk of socket.setEncoding("utf8").setTimeout(10_000, () => socket.destroy())) {
    text += chunk;
    if (/^MSG reply .*\r\n.*\r\n/m.test(text)) break;
  }
  if (!text.includes("stream_create_response") || text.includes('"error"'))
    throw new Error(`NATS made no bucket: ${text.slice(-500)}`);
}
