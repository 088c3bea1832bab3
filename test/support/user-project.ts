/** A project of a user: the package as it is published in its node_modules, and no other package but those that are named. */

import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { builtFile } from "./built-file.ts";

const run = promisify(execFile);
const RUN_MS = 60_000;

export interface UserProject extends Disposable {
  readonly folder: string;
  /** Writes files; the keys are their paths in the project. */
  write(files: Readonly<Record<string, string>>): void;
  /** Runs Node in the project's folder, and returns what it prints on both. @throws if it fails */
  run(...args: readonly string[]): Promise<string>;
}

/** @param libraries their folders, "node_modules/ioredis" */
export function createUserProject(libraries: readonly string[] = []): UserProject {
  const dist = dirname(builtFile("dist/index.js"));
  const folder = mkdtempSync(join(tmpdir(), "holdfast-project-"));
  // not a link: it would find the libraries of this repository
  const installed = join(folder, "node_modules/holdfast");
  mkdirSync(installed, { recursive: true });
  cpSync("package.json", join(installed, "package.json"));
  cpSync(dist, join(installed, "dist"), { recursive: true });
  for (const library of libraries) {
    const link = join(folder, "node_modules", library.replace(/.*node_modules\//, ""));
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(resolve(library), link);
  }
  return {
    folder,
    write(files) {
      for (const [path, text] of Object.entries(files)) {
        mkdirSync(dirname(join(folder, path)), { recursive: true });
        writeFileSync(join(folder, path), text);
      }
    },
    async run(...args) {
      const { stdout, stderr } = await run(process.execPath, args, { cwd: folder, timeout: RUN_MS });
      return stdout + stderr;
    },
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  };
}
