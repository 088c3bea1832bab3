// `npm run build`: src to dist. Code by rolldown, twice: as ES modules, and as CommonJS for the command line and for loaders
// that have nothing else. Types by tsc, bundled by rollup-plugin-dts. docs/decisions/0014 says why. The pages of the dashboard by
// esbuild, which bundles styles, too.

import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import type { BuiltFile } from "./bundle/code.ts";
import { bundleCode, CLI } from "./bundle/code.ts";
import { bundlePages } from "./bundle/pages.ts";
import { renderThirdPartyLicenses } from "./bundle/third-party.ts";
import { bundleTypes } from "./bundle/types.ts";
import { readPackageEntries } from "./check/package-entries.ts";
import { renderManPage } from "./man-page.ts";

const OUTPUT_DIRECTORY = "dist";
const PROGRAM = join(OUTPUT_DIRECTORY, "cli/main.js");
const MANUAL = "holdfast.1";

/** Code before that imports it, so that a process which starts just now finds what it needs. Nothing is emptied first. */
function write(files: readonly BuiltFile[]): void {
  for (const { path, text } of files) {
    const file = join(OUTPUT_DIRECTORY, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
}

/** What earlier builds left: it would be published. dist is never emptied: a process may be loading from it. */
function removeStale(fresh: ReadonlySet<string>): void {
  for (const entry of readdirSync(OUTPUT_DIRECTORY, { recursive: true, withFileTypes: true })) {
    const file = join(entry.parentPath, entry.name);
    const path = relative(OUTPUT_DIRECTORY, file).replaceAll("\\", "/");
    if (!entry.isDirectory() && !fresh.has(path)) rmSync(file, { force: true });
  }
}

/** Replaces the file in one step: another process may be reading it. */
function writeManual(): void {
  const file = join(OUTPUT_DIRECTORY, MANUAL);
  writeFileSync(`${file}.new`, renderManPage(PROGRAM));
  renameSync(`${file}.new`, file);
}

/** What Node takes the files of a folder for: the package's own type is "module". */
function moduleTypes(): BuiltFile[] {
  return ["cli", "cjs"].map((folder) => ({ path: `${folder}/package.json`, text: '{"type":"commonjs"}\n' }));
}

const entries = readPackageEntries().filter(({ source }) => source !== CLI && existsSync(source));
const [code, pages, { files: types, faults }] = await Promise.all([
  bundleCode(entries),
  bundlePages(),
  bundleTypes(entries),
]);
for (const fault of faults) console.error(fault);
const licenses = {
  path: "THIRD-PARTY-LICENSES.txt",
  text: renderThirdPartyLicenses([...code.modules, ...pages.modules]),
};
const files = [...moduleTypes(), ...code.files, ...pages.files, ...types, licenses];
write(files);
removeStale(new Set([...files.map(({ path }) => path), MANUAL]));
chmodSync(PROGRAM, 0o755);
writeManual();
process.exitCode = faults.length === 0 ? 0 : 1;
