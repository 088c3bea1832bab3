/** Packages that only some tests need, and that are no dev dependencies: installed into a folder below test/interop. */

import { execFile, execFileSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { join, relative, resolve } from "node:path";
import { promisify } from "node:util";
import { assertOutsideOfTests } from "./outside-of-tests.ts";

const run = promisify(execFile);
const INTEROP = resolve("test/interop");
const INSTALL_MS = 180_000;
/** A binary for this platform is one file. */
const DOWNLOAD_MS = 20_000;
/** Compiling it takes minutes: long runs have them. */
const COMPILE_MS = 900_000;
const isLongRun = process.env.HOLDFAST_LONG === "1";
const GENERATE_MS = 60_000;
const SQLITE_BINARY = "build/Release/better_sqlite3.node";
/** Tells the version of Node for which the binary is. */
const SQLITE_MARKER = "build/abi";

/** Members of modules, as the tests call them. */
// biome-ignore lint/suspicious/noExplicitAny: their types are not installed with the project
export type InteropModule = any;

/** Loads a module from a folder below test/interop, whose package.json names its packages. */
export function loadInterop(name: string, folder: string = ""): InteropModule {
  return createRequire(join(installInterop(folder), "package.json"))(name);
}

/** The path of the module. */
export function resolveInterop(name: string, folder: string): string {
  return createRequire(join(installInterop(folder), "package.json")).resolve(name);
}

/** Installs what the package.json of a folder below test/interop names, unless it is there. @returns the folder's path */
export function installInterop(folder: string): string {
  const path = join(INTEROP, folder);
  installMissing(path);
  return path;
}

/** Installs these side by side: npm waits for most of the time. What another process installs just now is left to it. */
export async function installInteropFolders(folders: readonly string[]): Promise<void> {
  const install = async (folder: string): Promise<void> => {
    const path = join(INTEROP, folder);
    const lock = lockOf(path);
    if (isInstalled(path) || !tryMakeFolder(lock)) return;
    try {
      console.log(`installing the packages of ${relative(".", path)}`);
      await run("npm", npmArguments(path), { cwd: path, timeout: INSTALL_MS });
    } finally {
      rmSync(lock, { recursive: true, force: true });
    }
  };
  await Promise.allSettled(folders.map(install));
}

/** Installs better-sqlite3 12 with its binary, which depends on the platform and on the version of Node: it may not be had. */
export function installBetterSqlite3(): void {
  const folder = "better-sqlite3";
  const path = installInterop(folder);
  const cwd = join(path, "node_modules", folder);
  alone(path, () => {
    if (hasBetterSqlite3()) return;
    console.log(`fetching the binary of ${folder}`);
    rmSync(join(cwd, SQLITE_BINARY), { force: true });
    let text = tryRun(process.execPath, ["../prebuild-install/bin.js"], { cwd, timeout: DOWNLOAD_MS });
    const isMissing = (): boolean => !existsSync(join(cwd, SQLITE_BINARY));
    if (isMissing() && isLongRun) text += tryRun("npm", ["run", "build-release"], { cwd, timeout: COMPILE_MS });
    if (isMissing()) console.log(`${folder} has no binary here: ${text.trim()}`);
    else writeFileSync(join(cwd, SQLITE_MARKER), process.versions.modules);
  });
}

/** better-sqlite3 12, or why it cannot be had. */
export function loadBetterSqlite3(): InteropModule | string {
  const folder = "better-sqlite3";
  return hasBetterSqlite3() ? loadInterop(folder, folder) : `${folder} has no binary for this platform and Node`;
}

/** The path of its module, for a process of its own; null: it cannot be had. */
export function findBetterSqlite3(): string | null {
  const folder = "better-sqlite3";
  return hasBetterSqlite3() ? resolveInterop(folder, folder) : null;
}

function hasBetterSqlite3(): boolean {
  const folder = join(INTEROP, "better-sqlite3/node_modules/better-sqlite3");
  const marker = join(folder, SQLITE_MARKER);
  if (!existsSync(join(folder, SQLITE_BINARY)) || !existsSync(marker)) return false;
  return readFileSync(marker, "utf8") === process.versions.modules;
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

/** Installs Prisma where it is wanted: it takes half a minute. */
export function installPrisma(): void {
  if (isLongRun) installInterop("prisma");
}

/**
 * Copies a program of examples/ to where it finds the packages of the folder of this name, and this package by its name. Returns
 * the path of the copy.
 */
export function prepareExample(name: string): string {
  const modules = installWithPackage(name);
  alone(join(INTEROP, name), () => {
    mkdirSync(join(modules, ".example"), { recursive: true });
    replaceFile(join("examples", name, "main.mjs"), join(modules, ".example/main.mjs"));
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
    replaceFile("package.json", join(copy, "package.json"));
    if (!existsSync(join(copy, "dist"))) symlinkSync(resolve("dist"), join(copy, "dist"));
  });
  return modules;
}

/** Copies a file at once: a program that another test has started may be reading the old one. */
function replaceFile(source: string, target: string): void {
  const copy = `${target}.new`;
  copyFileSync(source, copy);
  renameSync(copy, target);
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
  assertOutsideOfTests(`what ${path}/package.json names`);
  alone(path, () => {
    if (isInstalled(path)) return;
    console.log(`installing the packages of ${relative(".", path)}`);
    execFileSync("npm", npmArguments(path), { cwd: path, stdio: "pipe", timeout: INSTALL_MS });
  });
}

function npmArguments(path: string): string[] {
  const hasLockFile = existsSync(join(path, "package-lock.json"));
  const command = hasLockFile ? ["ci"] : ["install", "--no-package-lock"];
  return [...command, "--no-audit", "--no-fund", "--ignore-scripts"];
}

/** Runs it while no other file of tests, in another process, installs into the folder. */
function alone<T>(path: string, work: () => T): T {
  const lock = lockOf(path);
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

/** The folder that is there while somebody installs into `path`. */
function lockOf(path: string): string {
  mkdirSync(join(path, "node_modules"), { recursive: true });
  return join(path, "node_modules", ".installing");
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
