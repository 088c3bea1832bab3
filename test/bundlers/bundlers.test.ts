// Programs that use the package, built by the bundlers that users have, and run. Only the configuration that the guide names.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { BuildOptions } from "esbuild";
import { build as esbuild } from "esbuild";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { InteropModule } from "../support/interop.ts";
import { loadInterop, resolveInterop } from "../support/interop.ts";
import { withRedis } from "../support/stores/redis-conformance.ts";
import type { UserProject } from "../support/user-project.ts";
import { createUserProject } from "../support/user-project.ts";

const TIMEOUT_MS = 60_000;

/** As in the README; the store's url is the program's argument. */
const CONNECTED = `
import { connect, LockTimeoutError } from "holdfast";
const locks = await connect(process.argv[2] ?? "memory:");
await locks.using("bundled", async (lock) => console.log("held", lock.keys.join()));
const held = await locks.acquire("taken");
const refusal = await locks.acquire("taken", { wait: 0 }).catch((error) => error);
console.log(refusal instanceof LockTimeoutError ? refusal.name : refusal);
await held.release();
await locks.close();
`;
/** What a bundler may put beside the program: entries that share code with what connect() loads. */
const SEVERAL_ENTRIES = `
import { createLocks } from "holdfast";
import { postgres } from "holdfast/postgres";
import { createTestLocks } from "holdfast/testing";
${CONNECTED}
console.log(typeof createLocks, typeof postgres);
const testLocks = createTestLocks();
await testLocks.using("tested", ({ keys }) => console.log("held", keys.join()));
await testLocks.close();
`;
const REDIS = `
import { createLocks } from "holdfast";
import { redis } from "holdfast/redis";
import { Redis } from "ioredis";
const client = new Redis(process.argv[2]);
const locks = createLocks(redis(client));
await locks.using("bundled", async (lock) => console.log("held", lock.keys.join()));
await locks.close();
client.disconnect();
`;
const HELD = "held bundled\n";
const HELD_ALONE = `${HELD}LockTimeoutError\n`;
const HELD_TWICE = `${HELD_ALONE}function function\nheld tested\n`;

/** A program without a top-level await, which CommonJS does not have. */
function inFunction(program: string): string {
  const [imports, body] = [/^import .*$/gm, program.replace(/^import .*$/gm, "")] as const;
  return `${program.match(imports)?.join("\n")}\n(async () => {${body}})().catch((error) => console.log(error.code, error.message));\n`;
}

/** The line of the page "In a bundle" that begins so, as a bundler's options. */
function guideLine(beginning: string): object {
  const page = readFileSync("docs/guide/quick-start.md", "utf8");
  const line = page.split("\n").find((text) => text.startsWith(`${beginning}:`));
  if (line === undefined) throw new Error(`the guide has no line that begins with "${beginning}:"`);
  return new Function(`return { ${line} }`)() as object;
}

let project: UserProject;
/** The same with ioredis. */
let withIoredis: UserProject;
beforeAll(() => {
  project = createUserProject();
  withIoredis = createUserProject(["node_modules/ioredis"]);
  for (const { write } of [project, withIoredis]) {
    write({
      "connected.mjs": CONNECTED,
      "connected.cjs.js": inFunction(CONNECTED),
      "several.mjs": SEVERAL_ENTRIES,
      "redis.mjs": REDIS,
      "redis.cjs.js": inFunction(REDIS),
    });
  }
});
afterAll(() => {
  project[Symbol.dispose]();
  withIoredis[Symbol.dispose]();
});

type Webpack = (options: object, done: (error: Error | null, stats: WebpackStats) => void) => void;
type WebpackStats = {
  readonly compilation: { readonly errors: readonly Error[]; readonly warnings: readonly Error[] };
};

describe("webpack", () => {
  /** @returns the messages of its warnings */
  const pack = (entry: string, output: object, options: object = {}): Promise<string[]> =>
    new Promise((resolve, reject) => {
      const webpack = loadInterop("webpack", "bundlers") as Webpack;
      const context = project.folder;
      const settings = { context, entry, mode: "production", target: "node20", ...options };
      webpack({ ...settings, output: { path: join(context, "webpack"), ...output } }, (error, stats) => {
        const [first] = error === null ? stats.compilation.errors : [error];
        if (first !== undefined) reject(first);
        else resolve(stats.compilation.warnings.map(({ message }) => message));
      });
    });

  test("CommonJS", { timeout: TIMEOUT_MS }, async () => {
    const warnings = await pack("./connected.cjs.js", { filename: "main.cjs" });
    // of libraries that are not installed, and of nothing else
    expect(warnings.filter((warning) => !/^Module not found: .*'(?:[@\w/.-]+)' in/.test(warning))).toEqual([]);
    expect(await project.run("webpack/main.cjs")).toBe(HELD_ALONE);
    const [redis, postgres] = ["redis://127.0.0.1:1", "postgres://u@127.0.0.1:1/d"] as const;
    expect(await project.run("webpack/main.cjs", redis)).toMatch(
      /^LOCK_STORE_REFUSED .*"ioredis", which is not installed/,
    );
    expect(await project.run("webpack/main.cjs", postgres)).toMatch(
      /^LOCK_STORE_REFUSED .*"pg" or "postgres", neither/,
    );
  });

  test("ES modules", { timeout: TIMEOUT_MS }, async () => {
    const output = { filename: "main.mjs", module: true, chunkFormat: "module" };
    await pack("./several.mjs", output, { experiments: { outputModule: true } });
    expect(await project.run("webpack/main.mjs")).toBe(HELD_TWICE);
  });
});

describe("rollup, with several chunks", () => {
  const bundle = async (entry: string, output: object = {}): Promise<void> => {
    const { rollup }: InteropModule = loadInterop("rollup", "bundlers");
    const plugins = ["@rollup/plugin-node-resolve", "@rollup/plugin-commonjs"].map((name) =>
      loadInterop(name, "bundlers").default(),
    );
    const input = join(project.folder, `${entry}.mjs`);
    const bundled = await rollup({ input, plugins, onwarn: () => undefined });
    const dir = join(project.folder, "rollup", entry);
    await bundled.write({ dir, format: "es", entryFileNames: "main.mjs", chunkFileNames: "[name].mjs", ...output });
    await bundled.close();
  };

  test("the program of the README", { timeout: TIMEOUT_MS }, async () => {
    await bundle("connected", guideLine("manualChunks"));
    expect(await project.run("rollup/connected/main.mjs")).toBe(HELD_ALONE);
  });

  test("a program with several entries of the package", { timeout: TIMEOUT_MS }, async () => {
    await bundle("several", guideLine("manualChunks"));
    expect(await project.run("rollup/several/main.mjs")).toBe(HELD_TWICE);
  });
});

test("Vite, a build for the server that contains the package", { timeout: TIMEOUT_MS }, async () => {
  const { build }: InteropModule = await import(resolveInterop("vite", "bundlers"));
  await build({
    root: project.folder,
    logLevel: "silent",
    configFile: false,
    build: { ssr: "several.mjs", outDir: "vite" },
    ssr: { noExternal: true },
  });
  expect(await project.run("vite/several.mjs")).toBe(HELD_TWICE);
});

withRedis((server) => {
  describe.each(["included", "external"] as const)("esbuild, with ioredis %s", (place) => {
    const bundle = async (entry: string, options: BuildOptions): Promise<void> => {
      const { warnings } = await esbuild({
        absWorkingDir: withIoredis.folder,
        entryPoints: [entry],
        bundle: true,
        platform: "node",
        ...(place === "external" && { external: ["ioredis"] }),
        ...options,
        logLevel: "silent",
      });
      expect(warnings).toEqual([]);
    };

    test("ES modules", { timeout: TIMEOUT_MS }, async () => {
      const options = { format: "esm", ...(place === "included" && guideLine("banner")) } as const;
      await bundle("connected.mjs", { ...options, outfile: "esbuild/connected.mjs" });
      expect(await withIoredis.run("esbuild/connected.mjs")).toBe(HELD_ALONE);
      expect(await withIoredis.run("esbuild/connected.mjs", server().url)).toContain(HELD_ALONE);
      await bundle("redis.mjs", { ...options, outfile: "esbuild/redis.mjs" });
      expect(await withIoredis.run("esbuild/redis.mjs", server().url)).toContain(HELD);
    });

    test("CommonJS", { timeout: TIMEOUT_MS }, async () => {
      await bundle("connected.cjs.js", { format: "cjs", outfile: "esbuild/connected.cjs" });
      expect(await withIoredis.run("esbuild/connected.cjs", server().url)).toContain(HELD_ALONE);
      await bundle("redis.cjs.js", { format: "cjs", outfile: "esbuild/redis.cjs" });
      expect(await withIoredis.run("esbuild/redis.cjs", server().url)).toContain(HELD);
    });
  });
});
