/** Runtimes of JavaScript as npx has them: downloaded once, then started from npm's cache. */

import { execFile } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);
/** Before the tests: a download. During them: npx finds it in its cache. */
const DOWNLOAD_MS = 180_000;
const START_MS = 25_000;

export type Runtime = {
  readonly name: string;
  /** What comes before the path of a program; or why the runtime cannot be had. */
  readonly command: readonly [string, ...string[]] | string;
  readonly hasDecorators: boolean;
};

/** Downloads those that npx does not have yet. */
export async function installRuntimes(): Promise<void> {
  console.log("fetching other versions of Node, Bun and Deno, unless npx has them");
  for (const { command } of await findRuntimes(DOWNLOAD_MS)) if (typeof command === "string") console.log(command);
}

/** This Node, the other ones of 20 and 24, Bun and Deno. */
export async function findRuntimes(limitMs: number = START_MS): Promise<Runtime[]> {
  const majors = ["20", "24"].filter((major) => major !== process.versions.node.split(".")[0]);
  const nodes = majors.map((major) => findRuntime(limitMs, `node@${major}`, ["node", "-p", "process.execPath"]));
  const others = await Promise.all([
    ...nodes,
    findRuntime(limitMs, "bun@1.4", ["bun", "-p", "process.execPath"], { hasDecorators: true }),
    findRuntime(limitMs, "deno@2.9", ["deno", "eval", "console.log(Deno.execPath())"], {
      hasDecorators: true,
      flags: ["run", "--allow-all"],
    }),
  ]);
  return [{ name: `Node ${process.versions.node}`, command: [process.execPath], hasDecorators: false }, ...others];
}

async function findRuntime(
  limitMs: number,
  name: string,
  printPath: readonly string[],
  { hasDecorators = false, flags = [] as readonly string[] } = {},
): Promise<Runtime> {
  try {
    const args = ["--yes", "--prefer-offline", "--package", name, "--", ...printPath];
    const { stdout } = await run("npx", args, { timeout: limitMs });
    return { name, command: [stdout.trim(), ...flags], hasDecorators };
  } catch (error) {
    const { killed, stderr } = error as { readonly killed?: boolean; readonly stderr?: string };
    const reason = killed === true ? `not downloaded within ${limitMs / 1000} s` : `not downloaded: ${stderr}`;
    return { name, command: reason.trim().replaceAll("\n", " "), hasDecorators };
  }
}
