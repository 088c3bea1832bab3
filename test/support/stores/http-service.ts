/** A program for tests that serves HTTP on a free port, with its data in a temporary folder. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DatabaseCommand, DatabaseProcess } from "../../../src/torture/processes/database-process.ts";
import { startOnFreePort } from "../../../src/torture/processes/database-process.ts";

const DIAL_MS = 1_000;

export interface HttpService extends Pick<DatabaseProcess, "start" | "stop" | "crash" | "signal"> {
  readonly endpoint: string;
  /** Ends it, and deletes its data. */
  dispose(): Promise<void>;
}

interface HttpServiceCommand extends Pick<DatabaseCommand, "name" | "environment" | "faults"> {
  command(port: number, folder: string): DatabaseCommand["command"];
  /** What answers when it is ready. Default: "/". */
  readonly readyPath?: string;
}

export async function startHttpService(service: HttpServiceCommand): Promise<HttpService> {
  const { name, environment, faults, command, readyPath = "/" } = service;
  const folder = mkdtempSync(join(tmpdir(), "holdfast-service-"));
  const { port, process: server } = await startOnFreePort((port) => ({
    name,
    command: command(port, folder),
    log: join(folder, "log"),
    environment,
    stopSignal: "SIGTERM",
    faults,
    isReady: () => answers(`http://127.0.0.1:${port}${readyPath}`),
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

async function answers(url: string): Promise<boolean> {
  return fetch(url, { signal: AbortSignal.timeout(DIAL_MS) }).then(
    () => true,
    () => false,
  );
}
