/** The command line with a fault in it: built from a copy of the sources, so that the program of the other tests never has one. */

import { cpSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { build } from "esbuild";
import { isTextFile, textModules } from "../../scripts/text-modules.ts";
import type { Mutant } from "../mutation/mutants.ts";
import { applyMutant } from "../mutation/mutants.ts";

/**
 * Bundled like the pages of the dashboard, by esbuild, in less than a second; it loads faster than single files would.
 * @param folder is created; the result is the path of the program
 */
export async function buildMutatedProgram(mutant: Mutant, folder: string): Promise<string> {
  mkdirSync(folder);
  cpSync("src", join(folder, "src"), { recursive: true });
  cpSync("package.json", join(folder, "package.json"));
  symlinkSync(resolve("node_modules"), join(folder, "node_modules"));
  writeFileSync(join(folder, mutant.file), applyMutant(mutant));
  await build({
    absWorkingDir: folder,
    entryPoints: ["src/cli/main.ts"],
    outdir: "program",
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node20.19",
    packages: "external",
    logLevel: "silent",
    plugins: [
      {
        name: textModules.name,
        setup({ onLoad }) {
          onLoad({ filter: /\.(?:lua|sql|sh|c)$/ }, ({ path }) =>
            isTextFile(path) ? { contents: textModules.load(path) as string, loader: "js" } : null,
          );
        },
      },
    ],
  });
  return join(folder, "program/main.js");
}
