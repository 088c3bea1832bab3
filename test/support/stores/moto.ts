/** A real moto for tests, which speaks the protocol of S3: installed from PyPI into an environment of its own. */

import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { DatabaseProcess } from "../../../src/torture/processes/database-process.ts";
import { startOnFreePort } from "../../../src/torture/processes/database-process.ts";
import { canInstall, installPackages } from "../debian-packages.ts";
import { assertOutsideOfTests } from "../outside-of-tests.ts";

const FOLDER = resolve("test/interop/moto");
const ENVIRONMENT = join(FOLDER, "node_modules/python");
const INSTALL_MS = 180_000;

export interface Moto extends Pick<DatabaseProcess, "start" | "stop" | "crash" | "signal"> {
  readonly endpoint: string;
  dispose(): Promise<void>;
}

/** Its data end with it. */
export async function startMoto(): Promise<Moto> {
  installMoto();
  const folder = mkdtempSync(join(tmpdir(), "holdfast-moto-"));
  const { port, process: server } = await startOnFreePort((port) => ({
    name: "moto",
    command: [join(ENVIRONMENT, "bin/python"), resolve("test/support/stores/moto-server.py"), String(port)],
    log: join(folder, "log"),
    environment: { MOTO_PORT: String(port), PYTHONDONTWRITEBYTECODE: "1" },
    stopSignal: "SIGTERM",
    faults: /Traceback/g,
    isReady: () => answers(`http://127.0.0.1:${port}/moto-api/data.json`),
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

/** Does a server of HTTP answer there? */
export async function answers(url: string): Promise<boolean> {
  return fetch(url, { signal: AbortSignal.timeout(1_000) }).then(
    () => true,
    () => false,
  );
}

export function installMoto(): void {
  if (existsSync(ENVIRONMENT)) return;
  assertOutsideOfTests("moto");
  console.log("installing moto for the tests of S3");
  const unfinished = `${ENVIRONMENT}.${process.pid}`;
  createEnvironment(unfinished);
  const install = ["-m", "pip", "install", "--quiet", "--requirement", join(FOLDER, "requirements.txt")];
  execFileSync(join(unfinished, "bin/python"), install, { stdio: "pipe", timeout: INSTALL_MS });
  try {
    renameSync(unfinished, ENVIRONMENT);
  } catch {
    // another process was faster
    rmSync(unfinished, { recursive: true });
  }
}

/** Debian has the module that creates environments in a package of its own. */
function createEnvironment(path: string): void {
  const create = (python: string): boolean =>
    spawnSync(python, ["-m", "venv", path], { timeout: INSTALL_MS }).status === 0;
  if (create("python3")) return;
  if (canInstall()) installPackages(["python3-venv"], "the tests of S3");
  if (!create("/usr/bin/python3")) throw new Error("no Python with its module venv: install python3-venv by hand");
}
