/** A lock in a program of a user, who has installed some libraries and not others. */

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { createUserProject } from "./user-project.ts";

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
  const project = createUserProject(libraries);
  try {
    const args = ["--input-type=module", "--eval", PROGRAM, url];
    const { stdout } = await run(process.execPath, args, { cwd: project.folder, timeout: RUN_MS });
    return stdout.trim();
  } finally {
    project[Symbol.dispose]();
  }
}
