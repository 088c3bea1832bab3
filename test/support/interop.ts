/** Packages that only some tests need, and that are no dev dependencies: installed into a folder below test/interop. */

import { execFileSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

const INTEROP = resolve("test/interop");
const INSTALL_MS = 180_000;
/** A binary for this platform is one file. */
const DOWNLOAD_MS = 20_000;
/** Compiling it takes minutes: long runs have them. */
const COMPILE_MS = 900_000;
const isLongRun = process.env.HOLDFAST_LONG === "1";
const GENERATE_MS = 60_000;

/** Members of modules, as the tests call them. */
// biome-ignore lint/suspicious/noExplicitAny: their types are not installed with the project
export type InteropModule = any;

/** Loads a module from a folder below test/interop, whose package.json names its packages. */
export function loadInterop(name: string, folder: string = ""): InteropModule {
  return createRequire(join(installInterop(folder), "package.json"))(name);
}

/** Installs what the folder's package.json names, unless it is there. @returns the folder's path */
function installInterop(folder: string): string {
  const path = join(INTEROP, folder);
  installMissing(path);
  return path;
}

/** better-sqlite3 12, or why it cannot be had: its binary depends on the platform and on the version of Node. */
export function loadBetterSqlite3(): InteropModule | string {
  const folder = "better-sqlite3";
  const path = join(INTEROP, folder);
  installMissing(path);
  const cwd = join(path, "node_modules", folder);
  const [binary, marker] = [join(cwd, "build/Release/better_sqlite3.node"), join(cwd, "build/abi")];
  const output = alone(path, () => {
    const isComplete = existsSync(marker) && readFileSync(marker, "utf8") === process.versions.modules;
    if (isComplete) return "";
    rmSync(binary, { force: true });
    let text = tryRun(process.execPath, ["../prebuild-install/bin.js"], { cwd, timeout: DOWNLOAD_MS });
    if (!existsSync(binary) && isLongRun) text += tryRun("npm", ["run", "build-release"], { cwd, timeout: COMPILE_MS });
    if (existsSync(binary)) writeFileSync(marker, process.versions.modules);
    return text;
  });
  if (!existsSync(binary)) return `better-sqlite3 has no binary here: ${output.trim()}`;
  return loadInterop(folder, folder);
}

/**
 * Prisma 7: its client class for a database, and the class of the adapter; or why it cannot be had.
 * @param adapter "@prisma/adapter-pg"
 */
export function loadPrisma(
  provider: "postgresql" | "mysql",
  adapter: string,
): { readonly PrismaClient: InteropModule; readonly adapters: InteropModule } | string {
  const folder = "prisma";
  const path = join(INTEROP, folder);
  if (!isLongRun && !isInstalled(path))
    return "Prisma is not installed: long runs install it, which takes half a minute";
  installMissing(path);
  const schema = join(path, "node_modules", `${provider}.prisma`);
  const output = join(path, "node_modules", `.client-${provider}`);
  alone(path, () => {
    if (existsSync(join(output, "index.js"))) return;
    const client = `generator client {\n  provider = "prisma-client-js"\n  output = ${JSON.stringify(output)}\n}`;
    const database = `datasource db {\n  provider = "${provider}"\n}`;
    // a client without models has no query methods
    writeFileSync(schema, `${client}\n${database}\nmodel Unused {\n  id Int @id\n}\n`);
    // it would download an engine that the client of an adapter does not use
    const env = { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: "1" };
    const args = ["node_modules/prisma/build/index.js", "generate", "--schema", schema];
    execFileSync(process.execPath, args, { cwd: path, env, stdio: "pipe", timeout: GENERATE_MS });
  });
  const { PrismaClient } = createRequire(join(path, "package.json"))(join(output, "index.js")) as InteropModule;
  return { PrismaClient, adapters: loadInterop(adapter, folder) };
}

/** The program of Jest and the folder of its tests, or why it cannot be had. */
export function findJest(): { readonly program: string; readonly folder: string } | string {
  const folder = join(INTEROP, "jest");
  if (!isLongRun && !isInstalled(folder)) return "not installed: long runs install it, which takes 20 s";
  installMissing(folder);
  return { program: join(folder, "node_modules/jest/bin/jest.js"), folder };
}

/**
 * Copies a program of examples/ to where it finds the packages of the folder of this name, and this package by its name. Returns
 * the path of the copy.
 */
export function prepareExample(name: string): string {
  const modules = installWithPackage(name);
  alone(join(INTEROP, name), () => {
    mkdirSync(join(modules, ".example"), { recursive: true });
    copyFileSync(join("examples", name, "main.mjs"), join(modules, ".example/main.mjs"));
  });
  return join(modules, ".example/main.mjs");
}

/** Installs the packages of a folder and, as `holdfast`, this package as it was built. Returns the path of node_modules. */
export function installWithPackage(folder: string): string {
  const path = installInterop(folder);
  const modules = join(path, "node_modules");
  const copy = join(modules, "holdfast");
  alone(path, () => {
    // not a link to the project: tools that follow links would never come to an end
    if (lstatSync(copy, { throwIfNoEntry: false })?.isSymbolicLink()) rmSync(copy);
    mkdirSync(copy, { recursive: true });
    copyFileSync("package.json", join(copy, "package.json"));
    if (!existsSync(join(copy, "dist"))) symlinkSync(resolve("dist"), join(copy, "dist"));
  });
  return modules;
}

function tryRun(command: string, args: readonly string[], options: { cwd: string; timeout: number }): string {
  try {
    return execFileSync(command, args, { ...options, stdio: "pipe", encoding: "utf8" });
  } catch (error) {
    return String((error as { readonly stderr?: string }).stderr);
  }
}

function isInstalled(path: string): boolean {
  const { dependencies } = JSON.parse(readFileSync(join(path, "package.json"), "utf8")) as { dependencies: object };
  return Object.keys(dependencies).every((name) => existsSync(join(path, "node_modules", name, "package.json")));
}

function installMissing(path: string): void {
  if (isInstalled(path)) return;
  alone(path, () => {
    if (isInstalled(path)) return;
    const hasLockFile = existsSync(join(path, "package-lock.json"));
    const command = hasLockFile ? ["ci"] : ["install", "--no-package-lock"];
    execFileSync("npm", [...command, "--no-audit", "--no-fund", "--ignore-scripts"], {
      cwd: path,
      stdio: "pipe",
      timeout: INSTALL_MS,
    });
  });
}

/** Runs it while no other file of tests, in another process, installs into the folder. */
function alone<T>(path: string, work: () => T): T {
  const lock = join(path, "node_modules", ".installing");
  mkdirSync(join(path, "node_modules"), { recursive: true });
  while (!tryMakeFolder(lock)) {
    const since = statSync(lock, { throwIfNoEntry: false })?.mtimeMs ?? Date.now();
    // of a process that was killed
    if (Date.now() - since > INSTALL_MS + COMPILE_MS) rmSync(lock, { recursive: true, force: true });
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100);
  }
  try {
    return work();
  } finally {
    rmSync(lock, { recursive: true, force: true });
  }
}

function tryMakeFolder(path: string): boolean {
  try {
    mkdirSync(path);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
}
