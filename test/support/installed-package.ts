/** The built package as users have it: in a node_modules of its own, beside the libraries that they have installed. */

import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { builtFile } from "./built-file.ts";

const RUN_MS = 30_000;

const PROGRAM = `
import { connect } from "holdfast";
try {
  const locks = await connect(process.argv[1]);
  await locks.using("key", () => console.log("locked"));
  await locks.close();
} catch ({ code, message }) {
  console.log(code, message);
}
`;

const run = promisify(execFile);

/**
 * Takes a lock in a program that has these libraries and no others.
 * @param libraries their folders, "node_modules/pg"
 * @returns "locked", or the code and the message of the error
 */
export async function lockWithLibraries(url: string, libraries: readonly string[]): Promise<string> {
  const dist = dirname(builtFile("dist/index.js"));
  const folder = mkdtempSync(join(tmpdir(), "holdfast-installed-"));
  try {
    // not a link: it would find the libraries of this repository
    const installed = join(folder, "node_modules/holdfast");
    mkdirSync(installed, { recursive: true });
    cpSync("package.json", join(installed, "package.json"));
    cpSync(dist, join(installed, "dist"), { recursive: true, filter: (path) => !/\.(?:map|d\.ts)$/.test(path) });
    for (const library of libraries) symlinkSync(resolve(library), join(folder, "node_modules", basename(library)));
    const args = ["--input-type=module", "--eval", PROGRAM, url];
    const { stdout } = await run(process.execPath, args, { cwd: folder, timeout: RUN_MS });
    return stdout.trim();
  } finally {
    rmSync(folder, { recursive: true });
  }
}
