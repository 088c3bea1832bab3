/**
 * `npm run bench -- --imports BUILD [--rounds N] [ENTRY...]`: how long the first import of each entry takes, with this
 * checkout's build and with another one, each time in a process of its own, in turns. CPU is what a busy machine tells
 * best. It judges nothing.
 */

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { readPackageEntries } from "../../scripts/check/package-entries.ts";
import { waitForIdle } from "../harness/machine.ts";
import { quantile } from "../harness/stats.ts";

const PATIENCE_MS = 200;
/** Processes before the first that counts. */
const WARM_UP = 2;

/** @param names of entries, such as "fencing"; none: all that both builds have */
export async function compareImports(folder: string, rounds: number, names: readonly string[]): Promise<void> {
  const { status } = spawnSync("npm", ["run", "--silent", "build"], { stdio: "inherit" });
  if (status !== 0) throw new Error("npm run build failed");
  const builds = [folder, "."];
  const files = readPackageEntries()
    .map(({ source }) => source.replace(/^src\//, "dist/").replace(/\.ts$/, ".js"))
    .filter((file) => !file.startsWith("dist/cli/") && builds.every((build) => existsSync(join(build, file))))
    .filter((file) => names.length === 0 || names.some((name) => file.includes(name)));
  console.log(`entry: milliseconds old -> new (CPU old -> new), medians of ${rounds}`);
  for (const file of files) {
    const found: { readonly ms: number; readonly cpu: number }[][] = [[], []];
    for (let round = -WARM_UP; round < rounds; round++) {
      await waitForIdle(PATIENCE_MS);
      for (const turn of [round & 1, 1 - (round & 1)]) {
        const measured = measureImport(join(builds[turn] as string, file));
        if (round >= 0) found[turn]?.push(measured);
      }
    }
    const median = (figure: "ms" | "cpu"): string =>
      found
        .map((all) =>
          quantile(
            all.map((one) => one[figure]),
            0.5,
          ).toFixed(1),
        )
        .join(" -> ");
    console.log(`${file}: ${median("ms")} (${median("cpu")})`);
  }
}

function measureImport(file: string): { readonly ms: number; readonly cpu: number } {
  const program = `
    const before = process.cpuUsage(), start = performance.now();
    await import(${JSON.stringify(pathToFileURL(resolve(file)).href)});
    const ms = performance.now() - start, { user, system } = process.cpuUsage(before);
    console.log(JSON.stringify({ ms, cpu: (user + system) / 1_000 }));`;
  const { stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", program], { encoding: "utf8" });
  if (stdout === "") throw new Error(`${file} cannot be imported: ${stderr}`);
  return JSON.parse(stdout) as { readonly ms: number; readonly cpu: number };
}
