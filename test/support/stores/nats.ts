/** A real nats-server with JetStream for tests: installed from Debian where it is missing. */

import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DatabaseProcess } from "../../../src/torture/processes/database-process.ts";
import { firstAnswer, startOnFreePort } from "../../../src/torture/processes/database-process.ts";
import { installPackages } from "../debian-packages.ts";

const PROGRAM = "/usr/sbin/nats-server";

export interface NatsServer extends Pick<DatabaseProcess, "start" | "stop" | "crash" | "signal"> {
  readonly port: number;
  readonly address: string;
  dispose(): Promise<void>;
}

/** @param settings further lines of its configuration: accounts, users */
export async function startNats(settings: string = "jetstream: { store_dir: DATA }"): Promise<NatsServer> {
  installNats();
  const folder = mkdtempSync(join(tmpdir(), "holdfast-nats-"));
  const config = join(folder, "nats.conf");
  const { port, process: server } = await startOnFreePort((port) => {
    const lines = [`listen: "127.0.0.1:${port}"`, settings.replace("DATA", JSON.stringify(join(folder, "data")))];
    writeFileSync(config, lines.join("\n"), { mode: 0o600 });
    return {
      name: "nats-server",
      command: [PROGRAM, "-c", config],
      log: join(folder, "log"),
      environment: {},
      stopSignal: "SIGTERM",
      faults: /\[FTL\]/g,
      isReady: async () => (await firstAnswer(port, new Uint8Array())).toString().startsWith("INFO"),
    };
  });
  return {
    ...server,
    port,
    address: `127.0.0.1:${port}`,
    async dispose() {
      await server.crash();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export function installNats(): void {
  if (!existsSync(PROGRAM)) installPackages(["nats-server"], "the tests of NATS");
}
