/** Runtimes of JavaScript as npx has them: downloaded once, then started from npm's cache. */

import { execFile } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);
const DOWNLOAD_MS = process.env.HOLDFAST_LONG === "1" ? 180_000 : 25_000;

export type Runtime = {
  readonly name: string;
  /** What comes before the path of a program; or why the runtime cannot be had. */
  readonly command: readonly [string, ...string[]] | string;
  readonly hasDecorators: boolean;
};

/** This Node, the other ones of 20 and 24, Bun and Deno. */
export async function findRuntimes(): Promise<Runtime[]> {
  const majors = ["20", "24"].filter((major) => major !== process.versions.node.split(".")[0]);
  const nodes = majors.map((major) => findRuntime(`node@${major}`, ["node", "-p", "process.execPath"]));
  const others = await Promise.all([
    ...nodes,
    findRuntime("bun@1.4", ["bun", "-p", "process.execPath"], { hasDecorators: true }),
    findRuntime("deno@2.9", ["deno", "eval", "console.log(Deno.execPath())"], {
      hasDecorators: true,
      flags: ["run", "--allow-all"],
    }),
  ]);
  return [{ name: `Node ${process.versions.node}`, command: [process.execPath], hasDecorators: false }, ...others];
}

async function findRuntime(
  name: string,
  printPath: readonly string[],
  { hasDecorators = false, flags = [] as readonly string[] } = {},
): Promise<Runtime> {
  try {
    const args = ["--yes", "--prefer-offline", "--package", name, "--", ...printPath];
    const { stdout } = await run("npx", args, { timeout: DOWNLOAD_MS });
    return { name, command: [stdout.trim(), ...flags], hasDecorators };
  } catch (error) {
    const { killed, stderr } = error as { readonly killed?: boolean; readonly stderr?: string };
    const reason = killed === true ? `not downloaded within ${DOWNLOAD_MS / 1000} s` : `not downloaded: ${stderr}`;
    return { name, command: reason.trim().replaceAll("\n", " "), hasDecorators };
  }
}
