/** What a program pays once: loading the library, its size, and `holdfast run` on a server that is there already. */

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { prepareSocketPath } from "../../src/os/user-directory.ts";
import type { BenchCase, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { ChildProcessRpc } from "../harness/child-rpc.ts";
import { waitForIdle } from "../harness/machine.ts";
import { IS_QUICK_RUN } from "../harness/quick-run.ts";
import { computeSpread } from "../harness/stats.ts";

const WARM_UP = 2;
const ROUNDS = IS_QUICK_RUN ? 2 : 15;
const CLI = "dist/cli/main.js";
const ENTRY = "dist/index.js";

export const importTime: BenchCase = {
  name: "import",
  title: "Loading the library's entry",
  about: `Each figure from ${ROUNDS} fresh processes: how long \`import\` of the built entry took, by the clock and by CPU.`,
  async run() {
    buildPackage();
    const [clock, cpu] = await measureFreshProcesses();
    const bytes = bundledEntryBytes();
    const rows: Row[] = [
      {
        name: "holdfast",
        figures: { ms: computeSpread(clock), "CPU ms": computeSpread(cpu), "bytes gzipped": computeSpread([bytes]) },
      },
    ];
    return {
      rows,
      checks: [
        check("goal", "ms to import the entry", computeSpread(clock), "at most", 15),
        check("goal", "bytes of the entry, gzipped", computeSpread([bytes]), "at most", 15 * 1_024),
      ],
    };
  },
};

export const runOverhead: BenchCase = {
  name: "run",
  title: "`holdfast run KEY -- true` on a warm server",
  about: `Against the start of a Node that does nothing, in turns, ${ROUNDS} of each; the server is running already.`,
  headline: ["ms"],
  reasons: {
    "*": "Reading the file of the command line, the processes of the watchdog and of the command, and the connection.",
  },
  async run() {
    buildPackage();
    const folder = mkdtempSync(join(tmpdir(), "holdfast-bench-"));
    const directory = join(folder, "d");
    const server = new ChildProcessRpc(new URL("../servers/holdfast.child.js", import.meta.url), []);
    try {
      await server.call("listen", { path: prepareSocketPath(directory), tcp: false });
      const env = { ...process.env, HOLDFAST_DIR: directory };
      const emptyTimes: number[] = [];
      const runTimes: number[] = [];
      for (let round = -WARM_UP; round < ROUNDS; round++) {
        await waitForIdle();
        const times = [measureMs(["-e", "0"], env), measureMs([CLI, "run", "bench", "--", "true"], env)] as const;
        if (round < 0) continue;
        emptyTimes.push(times[0]);
        runTimes.push(times[1]);
      }
      const added = computeSpread(runTimes.map((runTime, round) => runTime - (emptyTimes[round] as number)));
      return {
        rows: [
          { name: "node -e 0", figures: { ms: computeSpread(emptyTimes) } },
          { name: "holdfast run", figures: { ms: computeSpread(runTimes), "ms added": added } },
        ],
        checks: [check("goal", "ms added to Node's own start", added, "at most", 40)],
      };
    } finally {
      await server.end();
      rmSync(folder, { recursive: true, force: true });
    }
  },
};

/** dist is what users load; it may be older than the sources. */
function buildPackage(): void {
  readOutput("npm", ["run", "--silent", "build"]);
}

/** Milliseconds by the clock and of CPU, process by process. */
async function measureFreshProcesses(): Promise<readonly [number[], number[]]> {
  const program = `
    const cpu = process.cpuUsage(), start = performance.now();
    await import(${JSON.stringify(pathToFileURL(resolve(ENTRY)).href)});
    const ms = performance.now() - start, { user, system } = process.cpuUsage(cpu);
    console.log(JSON.stringify([ms, (user + system) / 1_000]));`;
  const clock: number[] = [];
  const cpu: number[] = [];
  for (let round = -WARM_UP; round < ROUNDS; round++) {
    await waitForIdle();
    const [ms, cpuMs] = JSON.parse(readOutput(process.execPath, ["--input-type=module", "-e", program])) as [
      number,
      number,
    ];
    if (round < 0) continue;
    clock.push(ms);
    cpu.push(cpuMs);
  }
  return [clock, cpu];
}

/** As size-limit packs it; `npm run check` enforces the same bound. */
function bundledEntryBytes(): number {
  const { stdout } = spawnSync("npx", ["size-limit", "--json"], { encoding: "utf8" });
  const [entry] = JSON.parse(stdout) as { readonly size: number }[];
  if (entry === undefined) throw new Error("size-limit said nothing");
  return entry.size;
}

function measureMs(args: readonly string[], env: NodeJS.ProcessEnv): number {
  const start = performance.now();
  readOutput(process.execPath, args, env);
  return performance.now() - start;
}

function readOutput(command: string, args: readonly string[], env: NodeJS.ProcessEnv = process.env): string {
  const { status, stdout, stderr } = spawnSync(command, args, { encoding: "utf8", env });
  if (status !== 0) throw new Error(`${command} ${args[0]} ended with ${status}: ${stderr.trim()}`);
  return stdout;
}
