/** The rivals' packages: installed below bench/ when they are first needed, and loaded from there. */

import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const BENCH_DIRECTORY = resolve("bench");

/** Installs what bench/package-lock.json says, unless that is done already. @throws if npm fails */
export function installThirdParty(): void {
  const lock = readFileSync(join(BENCH_DIRECTORY, "package-lock.json"), "utf8");
  const markerPath = join(BENCH_DIRECTORY, "node_modules/.installed-lock.json");
  if (existsSync(markerPath) && readFileSync(markerPath, "utf8") === lock) return;
  console.log("installing the rivals below bench/");
  // without scripts: one of them downloads a file into the user's home
  const { status } = spawnSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], {
    cwd: BENCH_DIRECTORY,
    stdio: ["ignore", "ignore", "inherit"],
  });
  if (status !== 0) throw new Error("the rivals could not be installed (npm ci in bench/)");
  writeFileSync(markerPath, lock);
}

/** A rival's module. It must have been installed. */
export function thirdPartyVersion<T>(name: string): T {
  return createRequire(join(BENCH_DIRECTORY, "package.json"))(name) as T;
}

/** The same for a rival that may be an ES module; of a CommonJS one `default` is what it exports. */
export async function loadThirdParty<T>(name: string): Promise<T> {
  const file = createRequire(join(BENCH_DIRECTORY, "package.json")).resolve(name);
  return (await import(pathToFileURL(file).href)) as T;
}

/** Compiles a rival's native part, which was left out when it was installed; why it could not be, else null. */
export function buildThirdParty(name: string): string | null {
  const isBuilt = (): boolean => existsSync(join(BENCH_DIRECTORY, "node_modules", name, "build/Release"));
  if (isBuilt()) return null;
  console.log(`compiling ${name} below bench/`);
  const { status } = spawnSync("npm", ["rebuild", name, "--no-audit", "--no-fund"], {
    cwd: BENCH_DIRECTORY,
    stdio: "ignore",
  });
  return status === 0 && isBuilt() ? null : `npm rebuild ${name} failed (a compiler and Python are needed)`;
}
