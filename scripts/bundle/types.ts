// The types of the package: tsc writes those of each source, which are then bundled for the entries like the code.

import { join } from "node:path";
import type { OutputChunk } from "rollup";
import { rollup } from "rollup";
import { dts } from "rollup-plugin-dts";
import type { PackageEntry } from "../check/package-entries.ts";
import { runTool } from "../check/process.ts";
import type { BuiltFile } from "./code.ts";
import { isExternal } from "./externals.ts";

/** "outDir" of tsconfig.build.json. */
const DECLARATIONS = "build/types";

export interface BuiltTypes {
  readonly files: readonly BuiltFile[];
  readonly faults: readonly string[];
}

export async function bundleTypes(entries: readonly PackageEntry[]): Promise<BuiltTypes> {
  const faults = await runTool("tsc", "-p", "tsconfig.build.json");
  if (faults.length > 0) return { files: [], faults };
  const names = new Map(entries.map((entry) => [entry.source.replace(/^src\/|\.ts$/g, ""), entry]));
  const build = await rollup({
    input: Object.fromEntries([...names.keys()].map((name) => [name, join(DECLARATIONS, `${name}.d.ts`)])),
    external: isExternal,
    plugins: [dts()],
    onwarn: (warning) => {
      // options that an entry's own options extend, for which users have no use by themselves
      if (!/private shared type exports/.test(warning.message)) faults.push(warning.message);
    },
  });
  const { output } = await build.generate({
    entryFileNames: "[name].d.ts",
    chunkFileNames: ({ name }) => `types/${name.replace(/\.d$/, "")}-[hash].d.ts`,
  });
  await build.close();
  const chunks = output.filter((file) => file.type === "chunk");
  for (const chunk of chunks) chunk.code = raiseDirectives(chunk.code);
  const modules = chunks.map(({ fileName, code }) => ({ path: fileName, text: code }));
  const commonJs = selectCommonJs(chunks, (name) => names.get(name)?.hasCommonJs === true);
  return { files: [...modules, ...commonJs], faults };
}

/** A reference to a library of types counts only at the head of a file. */
function raiseDirectives(code: string): string {
  const directive = /^\/\/\/ <reference .*\n/gm;
  return [...new Set(code.match(directive)), code.replaceAll(directive, "")].join("");
}

/** The same text again: what a file of types describes, an ES module or CommonJS, depends on its folder. */
function selectCommonJs(chunks: readonly OutputChunk[], isWanted: (name: string) => boolean): BuiltFile[] {
  const wanted = chunks.filter(({ isEntry, name }) => !isEntry || isWanted(name));
  return wanted.map(({ fileName, code }) => ({ path: `cjs/${fileName}`, text: code }));
}
