// The code of the package: every entry, and the chunks that they share.

import { posix, resolve } from "node:path";
import { transform } from "esbuild";
import type { OutputChunk, OutputOptions, Plugin } from "rolldown";
import { rolldown } from "rolldown";
import type { PackageEntry } from "../check/package-entries.ts";
import { textModules } from "../text-modules.ts";
import { isExternal } from "./externals.ts";

export interface BuiltFile {
  /** Below dist. */
  readonly path: string;
  readonly text: string;
}

export interface BuiltCode {
  readonly files: readonly BuiltFile[];
  /** The paths of all modules whose code is in the files. */
  readonly modules: readonly string[];
}

export const CLI = "src/cli/main.ts";
const GATEWAY = "src/gateway/gateway.ts";
/** Loaded by the command line as ES modules, so that the package contains their code once. */
const SERVERS = ["src/server/server.ts", GATEWAY];
/** What rolldown makes of import() in CommonJS. */
const REQUIRED_SERVER =
  /Promise\.resolve\(\)\.then\(\(\) => [^;]*require\("[^"]*\/((?:server|gateway)\/\w+\.js)"\), 1\)\)/g;
/** The same of a module of the user, whose path is in a variable: require() would refuse one that awaits something. */
const REQUIRED_MODULE = /Promise\.resolve\(\)\.then\(\(\) => [^;]*require\((\w+)\), 1\)\)/g;

/** All that the smallest entries share with others. It needs no module of Node, which would take three milliseconds. */
const BASE = {
  name: "base",
  test: /src\/(?:errors|spi\/driver|util\/(?:backoff|crc16|duration|keys|thenable|validate))\.ts/,
  minShareCount: 3,
};

/** The libraries of the gateway, more than half of its code. Stack traces of other projects' code need not be read, so it is minified. */
const LIBRARIES = { name: "libraries", test: /node_modules\// };
/** `holdfast torture`, on which no other code depends: minified, too, so that the package stays small. */
const TORTURE_CHUNK = "torture";

/** These need modules of Node that take longer to load, of child processes and sockets. */
const SLOW_SYSTEM = "(?:file-lock|flock)\\.ts";

/**
 * What many entries have in common, in few files: by itself rolldown makes one for each combination of entries that share
 * it, and an import pays for each file, about as much as for 20 kB; a bundler of users keeps the whole of a file that two of
 * its own chunks need. What fencing needs of the drivers of etcd and of databases is apart from what only these use, and what needs TLS
 * from what does not: Node loads it in five milliseconds.
 */
const SHARED_CHUNKS = [
  BASE,
  {
    name: "handles",
    test: /src\/(?:fencing\/(?:handles|database-errors)|drivers\/revision-tokens|drivers\/etcd\/(?:client\/messages|names)|drivers\/sql\/(?:clients\/(?:emitter|members|mysql-protocol|sqlite)|schema|advisory\/lock-number))\.ts/,
    minShareCount: 2,
  },
  // what clients and drivers have in common beside it; the server needs the lease-time rule and nothing else of the client.
  // Without what only drivers with a library of the user's need: every client would load it.
  {
    name: "system",
    test: new RegExp(
      `src/(?:util/|os/(?!${SLOW_SYSTEM})|drivers/(?!memory|missing-library|conditional-write|document-store|revision-tokens|cluster-)[^/]*\\.ts|claim/lease-)`,
    ),
    minShareCount: 3,
  },
  { name: "protocol", test: /src\/protocol\//, minShareCount: 2 },
  { name: "lock-table", test: /src\/lock-table\//, minShareCount: 2 },
  { name: "locks", test: /src\/(?:client\/connect|wrapping\/locked)\.ts/, minShareCount: 2 },
  {
    name: "sql",
    test: /src\/drivers\/sql\/(?:clients\/(?:detect|source)|advisory\/[^/]*|[^/]*)\.ts/,
    minShareCount: 2,
  },
  { name: "postgres", test: /src\/drivers\/sql\/postgres\//, minShareCount: 2 },
  { name: "mysql", test: /src\/drivers\/sql\/mysql\//, minShareCount: 2 },
];

/** A command reads six files: its own, and what reaches a server; `--version` reads neither that nor the command's. */
const COMMAND_CHUNKS = [
  { ...BASE, test: new RegExp(`${BASE.test.source}|src/protocol/handshake`) },
  {
    name: "client",
    test: /src\/(?:client\/(?!driver-url|credential)|claim\/|net\/(?!tls)|protocol\/|drivers\/server\/)/,
  },
  { name: "terminal", test: /src\/cli\/(?:errors|output|signals|duration-flag)/ },
  {
    name: "run",
    test: /src\/cli\/(?:commands\/run\/|acquire-flags|store-choice|load-driver|open-store|lock-request|inherited|references|wait-reporter)|src\/os\/flock/,
  },
];

const COMMON: OutputOptions = {
  dir: "dist",
  // people read stack traces, and no bundler of users reads comments
  minify: false,
  comments: { legal: false, annotation: true, jsdoc: false },
  minifyInternalExports: false,
};

/** Above each module rolldown writes its path; a text is found by the name of its constant. */
const TEXT_PATH = /^\/\/ src\/.*\.(?:lua|sql|sh)\n/gm;

const serversStayOutside: Plugin = {
  name: "servers stay outside",
  async resolveId(source, importer, { kind }) {
    if (!/\/(?:server|gateway)\.ts$/.test(source)) return null;
    const found = await this.resolve(source, importer, { skipSelf: true });
    const server = SERVERS.find((path) => resolve(path) === found?.id);
    if (server === undefined) return null;
    if (kind !== "dynamic-import") throw new Error(`${importer}: load it only when it is needed: import("${source}")`);
    return { id: resolve(server.replace(/^src(.*)ts$/, "dist$1js")), external: true };
  },
  renderChunk(code, { fileName }) {
    const toPath = (path: string): string => JSON.stringify(posix.relative(posix.dirname(fileName), path));
    const loaded = code
      .replace(REQUIRED_SERVER, (_, path) => `import(${toPath(path)})`)
      .replace(REQUIRED_MODULE, (_, variable) => `import(${variable})`);
    if (/require\([^)]*\/(?:server|gateway)\.js"\)/.test(loaded))
      throw new Error(`${fileName} loads an ES module by require()`);
    return loaded;
  },
};

/** The library adds a method to one class of zod, but names all of zod for it, with its messages in fifty languages: 0.9 MB. */
const zodStaysSmall: Plugin = {
  name: "zod stays small",
  transform(code, id) {
    if (!id.endsWith("/@hono/zod-openapi/dist/index.mjs")) return null;
    const call = "extendZodWithOpenApi(z)";
    if (!code.includes(call)) throw new Error(`${id} no longer has ${call}`);
    return code.replace(call, "extendZodWithOpenApi({ ZodType: z.ZodType })");
  },
};

export async function bundleCode(entries: readonly PackageEntry[]): Promise<BuiltCode> {
  const modules = bundle([...entries.map(({ source }) => source), GATEWAY], [textModules, zodStaysSmall], {
    ...COMMON,
    format: "esm",
    codeSplitting: { groups: [LIBRARIES, ...SHARED_CHUNKS] },
    entryFileNames: "[name].js",
    chunkFileNames: "chunks/[name]-[hash].js",
  });
  const withCommonJs = entries.filter(({ hasCommonJs }) => hasCommonJs).map(({ source }) => source);
  const commonJs = bundle([...withCommonJs, CLI], [textModules, serversStayOutside], {
    ...COMMON,
    format: "cjs",
    codeSplitting: { groups: [...COMMAND_CHUNKS, ...SHARED_CHUNKS] },
    esModule: true,
    strict: true,
    entryFileNames: ({ name }) => (name === "cli/main" ? "[name].js" : "cjs/[name].js"),
    chunkFileNames: "cjs/chunks/[name]-[hash].js",
    // Jest has no import() in CommonJS
    dynamicImportInCjs: false,
  });
  const chunks = [...(await modules), ...(await commonJs)];
  return {
    files: await Promise.all(
      chunks.map(async ({ name, fileName, code }) => {
        const format = fileName.startsWith("cjs/") ? "cjs" : "esm";
        const isMinified = name === LIBRARIES.name || name === TORTURE_CHUNK;
        return { path: fileName, text: isMinified ? await minifyCode(code, format) : code.replaceAll(TEXT_PATH, "") };
      }),
    ),
    modules: chunks.flatMap(({ moduleIds }) => moduleIds),
  };
}

async function minifyCode(code: string, format: "cjs" | "esm"): Promise<string> {
  return (await transform(code, { minify: true, format, target: "node20.19", legalComments: "none" })).code;
}

async function bundle(sources: readonly string[], plugins: Plugin[], options: OutputOptions): Promise<OutputChunk[]> {
  const build = await rolldown({
    // the path of a file below dist is that of its source below src: its types and the export map have the same
    input: Object.fromEntries(sources.map((source) => [source.replace(/^src\/|\.ts$/g, ""), source])),
    platform: "node",
    external: isExternal,
    // "sideEffects" in package.json
    treeshake: { moduleSideEffects: false },
    transform: { target: "node20.19" },
    // what one entry loads on demand is a part of another one
    checks: { ineffectiveDynamicImport: false },
    plugins,
  });
  try {
    const { output } = await build.generate(options);
    return output.filter((file) => file.type === "chunk");
  } finally {
    await build.close();
  }
}
