/** A real moto for tests, which speaks the protocol of S3: installed from PyPI into an environment of its own. */

import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, renameSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { canInstall, installPackages } from "../debian-packages.ts";
import { assertOutsideOfTests } from "../outside-of-tests.ts";
import type { HttpService } from "./http-service.ts";
import { startHttpService } from "./http-service.ts";

const FOLDER = resolve("test/interop/moto");
const ENVIRONMENT = join(FOLDER, "node_modules/python");
const INSTALL_MS = 180_000;

/** Its data end with it. */
export async function startMoto(): Promise<HttpService> {
  installMoto();
  return startHttpService({
    name: "moto",
    command: (port) => [join(ENVIRONMENT, "bin/python"), resolve("test/support/stores/moto-server.py"), String(port)],
    environment: { PYTHONDONTWRITEBYTECODE: "1" },
    faults: /Traceback/g,
    readyPath: "/moto-api/data.json",
  });
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
