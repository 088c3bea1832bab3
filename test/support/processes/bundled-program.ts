/**
 * A program of the tests as one file, made of the sources as they are now: so a deliberate fault in them (test/mutation)
 * is in the program, too.
 */

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { rolldown } from "rolldown";
import { isExternal } from "../../../scripts/bundle/externals.ts";
import { textModules } from "../../../scripts/text-modules.ts";

export interface BundledProgram {
  readonly path: string;
  remove(): void;
}

/** @param source a path such as "test/support/processes/server.child.ts" */
export async function bundleProgram(source: string): Promise<BundledProgram> {
  // below the project, where Node finds the libraries that are not bundled
  mkdirSync("build", { recursive: true });
  const folder = mkdtempSync(resolve("build/bundled-"));
  const path = join(folder, "program.mjs");
  const bundle = await rolldown({ input: source, platform: "node", external: isExternal, plugins: [textModules] });
  await bundle.write({ file: path, format: "esm", codeSplitting: false });
  await bundle.close();
  return { path, remove: () => rmSync(folder, { recursive: true, force: true }) };
}
