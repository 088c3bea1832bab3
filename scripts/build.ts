// `npm run build`: src to dist. Types by tsc; code by esbuild, which makes few files of many: an import of the library
// finds, reads and links a dozen files instead of four dozen, and the command line is one (docs/decisions/0014).

import { execFileSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import type { BuildOptions, Metafile, Plugin } from "esbuild";
import { build } from "esbuild";
import { readPackageEntries } from "./check/package-entries.ts";
import { runTool } from "./check/process.ts";

const OUTPUT_DIRECTORY = "dist";
const CLI = "src/cli/main.ts";
const PROGRAM = join(OUTPUT_DIRECTORY, "cli/main.js");
/** Drivers that the command line loads by the url of the store. */
const STORES = ["redis/", "zookeeper/", "sql/postgres/", "sql/mysql/", "sql/sqlite/"];
const SERVER = "src/server/server.ts";
const LIBRARY = "src/index.ts";

/** Folders keep their depth: code that looks for its neighbours by import.meta.url is one folder below dist. */
const COMMON = {
  bundle: true,
  format: "esm",
  platform: "node",
  target: "node20.19",
  sourcemap: true,
  sourcesContent: false,
  logLevel: "warning",
  metafile: true,
} as const satisfies BuildOptions;

const { dependencies, peerDependencies } = JSON.parse(readFileSync("package.json", "utf8")) as Record<
  "dependencies" | "peerDependencies",
  Readonly<Record<string, string>>
>;
const PEERS = Object.keys(peerDependencies);
const INSTALLED_WITH_PACKAGE = [...Object.keys(dependencies), ...PEERS];

/** What is needed only by `holdfast serve` stays in the library's file, so that no other command reads it. */
const externalizeServer: Plugin = {
  name: "server stays outside",
  setup({ onResolve }) {
    onResolve({ filter: /\/server\/server\.ts$/ }, ({ path, resolveDir, kind }) => {
      if (resolve(resolveDir, path) !== resolve(SERVER)) return null;
      if (kind !== "dynamic-import") return { errors: [{ text: `load it only when it is needed: import("${path}")` }] };
      return { path: "../server/server.js", external: true };
    });
  },
};

/** The drivers of stores stay outside the command line's file: most calls reach a server, and would read them in vain. */
const externalizeStores: Plugin = {
  name: "drivers of stores stay outside",
  setup({ onResolve }) {
    onResolve({ filter: /from-url\.ts$/ }, ({ path, resolveDir, kind }) => {
      const source = relative("src/drivers", resolve(resolveDir, path)).replaceAll("\\", "/");
      if (kind !== "dynamic-import" || !STORES.some((folder) => source.startsWith(folder))) return null;
      return { path: `./stores/${source.replace(/\.ts$/, ".js")}`, external: true };
    });
  },
};

/** Entries that use the library itself share its module with the user: currentLock() must find what they run. */
const externalizeLibrary: Plugin = {
  name: "library stays outside",
  setup({ onResolve }) {
    onResolve({ filter: /\/index\.ts$/ }, ({ path, resolveDir, kind }) =>
      kind !== "entry-point" && resolve(resolveDir, path) === resolve(LIBRARY)
        ? { path: "../index.js", external: true }
        : null,
    );
  },
};

/**
 * An entry of the library, and in chunks what it loads on demand. No entry shares a chunk with another: that would cost
 * the main one files; so their classes differ, and errors are told apart by their codes. Some entries import the main one.
 */
function sourceEntry(source: string): Promise<Metafile> {
  return bundleOptions({
    ...COMMON,
    entryPoints: [source],
    outbase: "src",
    outdir: OUTPUT_DIRECTORY,
    splitting: true,
    chunkNames: "chunks/[name]-[hash]",
    // what the package does not depend on is bundled: zod, into what is loaded only with --http
    external: INSTALLED_WITH_PACKAGE,
    plugins: [externalizeLibrary],
  });
}

/** What externalizeStores leaves out. Classes of errors differ from those of the command line, as between entries. */
function buildStores(): Promise<Metafile> {
  const sources = STORES.flatMap((folder) =>
    readdirSync(join("src/drivers", folder))
      .filter((name) => name.endsWith("from-url.ts"))
      .map((name) => join("src/drivers", folder, name)),
  );
  return bundleOptions({
    ...COMMON,
    entryPoints: sources,
    outbase: "src/drivers",
    outdir: join(OUTPUT_DIRECTORY, "cli/stores"),
    splitting: true,
    chunkNames: "chunks/[name]-[hash]",
    external: INSTALLED_WITH_PACKAGE,
  });
}

/**
 * The command line: one file with its parser in it. Clients of stores stay peers of the package. It is CommonJS, the only
 * such file: as an ES module it would start 6 ms later (docs/decisions/0014).
 */
function buildCli(): Promise<Metafile> {
  return bundleOptions({
    ...COMMON,
    entryPoints: [CLI],
    format: "cjs",
    outfile: PROGRAM,
    loader: { ".sh": "text" },
    // each command reads the whole file: without comments and blanks it is a third shorter
    minifyWhitespace: true,
    minifySyntax: true,
    external: PEERS,
    plugins: [externalizeServer, externalizeStores],
    define: { "import.meta.url": "importMetaUrl" },
    banner: { js: '"use strict"; const importMetaUrl = require("node:url").pathToFileURL(__filename).href;' },
  });
}

/** An import of a chunk for nothing but its effects. */
const BARE_IMPORT = /^import "\.[^"]*";$/gm;

/**
 * Builds, and leaves out the bare imports by which esbuild keeps the order of effects: no module of ours has any
 * ("sideEffects" in package.json), and whoever bundles the package would be warned of each. Lines stay where they are.
 */
async function bundleOptions(options: BuildOptions): Promise<Metafile> {
  const { metafile, outputFiles = [] } = await build({ ...options, write: false });
  for (const { path, text } of outputFiles) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, /\.js$/.test(path) ? text.replace(BARE_IMPORT, "") : text);
  }
  return metafile as Metafile;
}

/** What earlier builds left: it would be published. dist is never emptied: a process may be loading from it. */
function removeStale(fresh: ReadonlySet<string>): void {
  for (const name of readdirSync(OUTPUT_DIRECTORY, { recursive: true, encoding: "utf8" })) {
    const file = relative(".", join(OUTPUT_DIRECTORY, name));
    const source = join("src", name.replace(/\.d\.ts(\.map)?$/, ".ts"));
    const isStale = /\.d\.ts(\.map)?$/.test(name)
      ? !existsSync(source)
      : /\.js(\.map)?$/.test(name) && !fresh.has(file.replaceAll("\\", "/"));
    if (isStale) rmSync(file, { force: true });
  }
}

/** The manual page, as the commands tell it of themselves; in one step, since somebody may be reading it. */
function writeManual(): void {
  const page = execFileSync(process.execPath, [PROGRAM, "help", "--man"]);
  const file = join(OUTPUT_DIRECTORY, "holdfast.1");
  writeFileSync(`${file}.new`, page);
  renameSync(`${file}.new`, file);
}

/** What Node takes the files of a folder for: the program is the only CommonJS file. */
function writeModuleTypes(): void {
  for (const [folder, type] of [
    ["cli", "commonjs"],
    ["cli/stores", "module"],
  ] as const)
    writeFileSync(join(OUTPUT_DIRECTORY, folder, "package.json"), `${JSON.stringify({ type })}\n`);
}

/** The licenses of the libraries whose code is in the bundles: each of them asks for its notice in copies. */
function writeThirdPartyLicenses(bundles: readonly Metafile[]): void {
  const inputs = bundles.flatMap(({ inputs }) => Object.keys(inputs));
  const names = new Set(
    inputs.flatMap((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)\/(?!.*node_modules\/)/.exec(path)?.[1] ?? []),
  );
  const texts = [...names].sort().map((name) => {
    const folder = join("node_modules", name);
    const file = readdirSync(folder).find((entry) => /^licen[sc]e/i.test(entry));
    if (file === undefined) throw new Error(`${folder} has no license file, but its code is bundled`);
    return `${name}\n${"-".repeat(name.length)}\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
  });
  const head = "Parts of these libraries are included in the files of this folder.\n";
  writeFileSync(join(OUTPUT_DIRECTORY, "THIRD-PARTY-LICENSES.txt"), [head, ...texts].join("\n"));
}

const entries = readPackageEntries()
  .map(({ source }) => source)
  .filter((source) => source !== CLI && existsSync(source));
const code = Promise.all([...entries.map(sourceEntry), buildCli(), buildStores()]);
const types = await runTool("tsc", "-p", "tsconfig.build.json");
const made = await code;
for (const fault of types) console.error(fault);
writeThirdPartyLicenses(made);
removeStale(new Set(made.flatMap(({ outputs }) => Object.keys(outputs))));
writeModuleTypes();
chmodSync(PROGRAM, 0o755);
writeManual();
process.exitCode = types.length === 0 ? 0 : 1;
