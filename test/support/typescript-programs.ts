/** Programs of a user, compiled by a version of TypeScript against the package as it is published, and run. */

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { builtFile } from "./built-file.ts";
import { installWithPackage } from "./interop.ts";
import { onCleanup } from "./server-fixture.ts";

const run = promisify(execFile);
const TIMEOUT_MS = 60_000;

/** The versions that are tested, by the names under which they are installed. */
export const TYPESCRIPT_VERSIONS = ["typescript54", "typescript5", "typescript6", "typescript7"] as const;

const STRICT_OPTIONS = {
  target: "es2022",
  lib: ["es2023", "esnext.disposable"],
  module: "nodenext",
  types: ["node"],
  strict: true,
  exactOptionalPropertyTypes: true,
  skipLibCheck: true,
  outDir: "out",
};

/** A folder beside the installed packages, in which programs resolve them and `holdfast`. The caller removes it. */
export function createProgramFolder(): string {
  // what `holdfast` resolves to
  builtFile("dist/index.js");
  const modules = installWithPackage("frameworks");
  mkdirSync(join(modules, ".programs"), { recursive: true });
  const folder = mkdtempSync(join(modules, ".programs", "p-"));
  writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
  return folder;
}

/** Compiles sources into the folder. @returns the paths of the programs. @throws with the compiler's output */
export async function compilePrograms(
  folder: string,
  typescript: (typeof TYPESCRIPT_VERSIONS)[number],
  sources: readonly string[],
  options: object = {},
): Promise<string[]> {
  for (const source of sources) copyFileSync(source, join(folder, basename(source)));
  const files = sources.map((source) => basename(source));
  writeFileSync(
    join(folder, "tsconfig.json"),
    JSON.stringify({ compilerOptions: { ...STRICT_OPTIONS, ...options }, files }),
  );
  // of 6, the program has the version in its name
  const compiler = ["tsc", "tsc6"].map((name) => join(folder, "../..", typescript, "bin", name)).find(existsSync);
  await run(process.execPath, [compiler as string, "-p", folder], { timeout: TIMEOUT_MS }).catch((error) => {
    throw new Error(`${typescript}: ${error.stdout}${error.stderr}`);
  });
  return files.map((file) => join(folder, "out", file.replace(/\.ts$/, ".js")));
}

/** Runs a program to its end. @throws if it fails */
export async function runCompiled(
  program: string,
  url: string,
): Promise<{ readonly stdout: string; readonly stderr: string }> {
  return run(process.execPath, [program], { timeout: TIMEOUT_MS, env: { ...process.env, HOLDFAST_URL: url } });
}

export interface RunningProgram {
  /** What it has printed, errors included. */
  output(): string;
  /** Sends SIGTERM. */
  stop(): void;
  readonly ended: Promise<unknown>;
}

/** Starts a program that runs until it is stopped, at the latest after the test. */
export function startCompiled(program: string, url: string): RunningProgram {
  const child = spawn(process.execPath, [program], { env: { ...process.env, HOLDFAST_URL: url } });
  let text = "";
  const onData = (part: Buffer): void => {
    text += part;
  };
  child.stdout.on("data", onData);
  child.stderr.on("data", onData);
  const ended = once(child, "close");
  onCleanup(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
    await ended;
  });
  return { output: () => text, stop: () => void child.kill("SIGTERM"), ended };
}
