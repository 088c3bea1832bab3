/** A real dynalite for tests, which speaks the protocol of DynamoDB. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DatabaseProcess } from "../../../src/torture/processes/database-process.ts";
import { startOnFreePort } from "../../../src/torture/processes/database-process.ts";
import { resolveInterop } from "../interop.ts";
import { answers } from "./moto.ts";

export interface Dynalite extends Pick<DatabaseProcess, "start" | "stop" | "crash" | "signal"> {
  readonly endpoint: string;
  dispose(): Promise<void>;
}

/** Its data end with it. */
export async function startDynalite(): Promise<Dynalite> {
  const program = resolveInterop("dynalite/cli.js", "dynalite");
  const folder = mkdtempSync(join(tmpdir(), "holdfast-dynalite-"));
  const { port, process: server } = await startOnFreePort((port) => ({
    name: "dynalite",
    command: [process.execPath, program, "--host", "127.0.0.1", "--port", String(port), "--createTableMs", "0"],
    log: join(folder, "log"),
    environment: {},
    stopSignal: "SIGTERM",
    faults: /Error/g,
    isReady: () => answers(`http://127.0.0.1:${port}/`),
  }));
  return {
    ...server,
    endpoint: `http://127.0.0.1:${port}`,
    async dispose() {
      await server.crash();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
