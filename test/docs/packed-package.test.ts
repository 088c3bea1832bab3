// The package as users get it: packed, installed into an empty directory, run and bundled there. Other runtimes come from npm's
// cache.

import { exec } from "node:child_process";
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join, relative, resolve } from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parsePage, readPages } from "../../scripts/check/markdown.ts";
import { until } from "../../src/testing/until.ts";
import type { CommandResult } from "../support/cli-sandbox.ts";
import { cliSandbox, readServerPids } from "../support/cli-sandbox.ts";
import { findRuntimes } from "../support/runtimes.ts";

const sandbox = cliSandbox();
const runShell = promisify(exec);
const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { readonly version: string };
/** Of all that is installed with the package. */
const MAX_BYTES = 4_150_000;
const MAX_FILES = 600;

const runtimes = await findRuntimes();
const README = parsePage({ path: "README.md", text: readFileSync("README.md", "utf8") });
const screensEnd = README.prose.indexOf("## What it guarantees");
const screens = README.blocks.filter(({ line }) => line < screensEnd).map(({ code }) => code);
const [invoice = "", inProject = "", message = "", orders = "", compiling = "", packing = "", inClone = ""] = screens;

let project = "";

beforeAll(async () => {
  project = mkdtempSync("/tmp/hf-packed-");
  const npmFlags = "--ignore-scripts --silent";
  const [pack, install] = packing.split("\n").map((line) => line.replace(/ +#.*/, "")) as [string, string];
  await runShell(`${pack.replace("npm ci && ", "")} ${npmFlags} --pack-destination ${project}`);
  await runShell("npm init --yes --silent", { cwd: project });
  // this repository's, so that nothing is downloaded
  const linked = [resolve("node_modules/@typescript/native")];
  const offline = "--offline --no-audit --no-fund --no-package-lock";
  const command = `${install.replace("/path/to", ".")} ${npmFlags} ${offline} ${linked.join(" ")}`;
  await runShell(command, { cwd: project });
  writeFileSync(join(project, "invoice.mjs"), invoice);
  writeFileSync(join(project, "orders.mts"), orders);
  await runShell(compiling.replace(/ && .*/, ""), { cwd: project });
}, 120_000);
afterAll(() => rmSync(project, { recursive: true, force: true }));

const installedPath = (...path: readonly string[]): string => join(project, "node_modules/holdfast", ...path);

describe("the first two screens of the README", () => {
  test("are these blocks, which the tests below run", () => {
    expect(screensEnd).toBeLessThan(105);
    expect(screens).toHaveLength(7);
    expect(packing).toContain(`npm install /path/to/holdfast-${version}.tgz`);
    expect(inClone).toBe("npm ci && npx holdfast run nightly-report -- echo hello");
    expect(README.prose.join("\n")).toContain("write `npx holdfast`");
    // without it, npx would download another package, whose name is tsc
    expect(README.prose.join("\n")).toContain("(`npm install --save-dev typescript`)");
  });

  test("the command for a clone", async () => {
    const command = inClone.replace("npm ci && ", "");
    expect((await sandbox.startProgram(["sh", "-c", command]).ended).out).toBe("hello\n");
  });

  test("the command in a second terminal prints who holds the lock", async () => {
    const command = `npx ${inProject}`;
    const first = sandbox.startProgram(["sh", "-c", command.replace("sleep 2", "sleep 60")], { cwd: project });
    await until(async () => (await sandbox.run(["ls", "nightly-report"])).out.includes("(sleep)"), {
      within: 20_000,
      what: "the first command to hold the lock",
    });
    const second = sandbox.startProgram(["sh", "-c", command], { cwd: project });
    const pattern = message
      .replace(/[()]/g, "\\$&")
      .replace("ana@web-1 pid 12219", "\\S+ pid (\\d+)")
      .replace("1 s", "\\d s");
    const findMessage = () => new RegExp(`^${pattern}$`, "m").exec(second.err());
    await until(() => findMessage() !== null, { within: 20_000, what: "the second command to print the holder" });
    process.kill(Number(findMessage()?.[1]), "SIGTERM");
    expect((await second.ended).code).toBe(0);
    await first.ended;
  });

  test("the compiled program", async () => {
    const command = compiling.replace(/.* && /, "");
    const result = await sandbox.startProgram(["sh", "-c", command], { cwd: project }).ended;
    expect(result).toEqual({ code: 0, signal: null, out: "paid 42\n", err: "" });
  });

  test("the installed command", async () => {
    const bin = join(project, "node_modules/.bin/holdfast");
    expect((await sandbox.startProgram([bin, "--version"]).ended).out).toBe(`${version}\n`);
  });

  describe.concurrent.each(runtimes)("on $name", ({ name, command, hasDecorators }) => {
    const start = (...args: readonly string[]): Promise<CommandResult> =>
      sandbox.startProgram([...command, ...args] as [string, ...string[]], {
        cwd: project,
        // a server of its own, which this runtime starts
        env: { ...packageFiles(name), NO_COLOR: "1" },
      }).ended;
    const holdfast = (line: string): Promise<CommandResult> =>
      start(installedPath("dist/cli/main.js"), ...line.split(" ").slice(1));

    test("the programs and the command, and a killed server", async ({ skip }) => {
      if (typeof command === "string") return skip(command);
      const clean = { code: 0, signal: null, err: "" };
      expect(await start("invoice.mjs")).toEqual({
        ...clean,
        out: expect.stringMatching(/^nobody else works on invoice:42; my token is \d+\n$/),
      });
      const log = join(packageFiles(name).HOLDFAST_DIR, "server.log");
      const [pid] = readServerPids(log) as [number];
      expect(readlinkSync(`/proc/${pid}/exe`)).toBe(realpathSync(command[0]));
      const [run, decorated] = await Promise.all([
        holdfast(inProject),
        start(hasDecorators ? "orders.mts" : "orders.mjs"),
      ]);
      expect(run).toEqual({ ...clean, out: "" });
      expect(decorated).toEqual({ ...clean, out: "paid 42\n" });
      process.kill(pid, "SIGKILL");
      expect(await holdfast("holdfast run k -- sh -c exit")).toEqual({ ...clean, out: "" });
      expect(readServerPids(log)).toHaveLength(2);
    });
  });
});

const ENTRIES_PROGRAM = `
import { currentLock, LockError, LockTimeoutError } from "holdfast";
import { createFenceGuard } from "holdfast/fencing";
import { createTestLocks } from "holdfast/testing";
const locks = createTestLocks();
console.log(await locks.wrap("wrapped", () => currentLock().keys)());
locks.busy("key");
const timeout = await locks.acquire("key", { wait: 0 }).catch((error) => error);
console.log(timeout.name, timeout.constructor === LockTimeoutError, timeout instanceof LockError);
const guard = createFenceGuard();
guard.check("key", 2n);
try { guard.check("key", 1n); } catch (error) { console.log(error.name, Object.getPrototypeOf(error.constructor) === LockError, error instanceof LockTimeoutError); }
await locks.close();
`;

test("the entries of the package share the classes of errors, and locks", async () => {
  writeFileSync(join(project, "entries.mjs"), ENTRIES_PROGRAM);
  const { out, err } = await sandbox.startProgram([process.execPath, "entries.mjs"], { cwd: project }).ended;
  expect({ out, err }).toEqual({
    out: "[ 'wrapped' ]\nLockTimeoutError true true\nStaleLockError true false\n",
    err: "",
  });
});

test("in Node, require() gives the same module as import", async () => {
  writeFileSync(
    join(project, "required.cjs"),
    'import("holdfast").then((imported) => console.log(imported.LockError === require("holdfast").LockError));',
  );
  const { out } = await sandbox.startProgram([process.execPath, "required.cjs"], { cwd: project }).ended;
  expect(out).toBe("true\n");
});

test.each([
  ["fencing", []],
  ["optimistic", ["node:timers/promises"]],
  ["cron", []],
  ["web-locks", []],
])(
  "holdfast/%s loads three files at most, of 66 kB, and no more modules of Node than it calls",
  async (name, modules) => {
    const entryPoints = [installedPath("dist", name, "index.js")];
    const { metafile } = await build({ entryPoints, bundle: true, platform: "node", write: false, metafile: true });
    const files = Object.values(metafile.inputs);
    expect(files.length).toBeLessThan(4);
    expect(files.reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThan(66_000);
    expect(files.flatMap(({ imports }) => imports.filter(({ external }) => external)).map(({ path }) => path)).toEqual(
      modules,
    );
  },
);

test("a minifier does not change the names of errors", async () => {
  const contents = 'import { LockTimeoutError } from "holdfast"; console.log(new LockTimeoutError("late").name);';
  const stdin = { contents, resolveDir: project };
  const outfile = join(project, "out/minified.mjs");
  await build({ stdin, outfile, bundle: true, minify: true, platform: "node", format: "esm", logLevel: "silent" });
  const { out, err } = await sandbox.startProgram([process.execPath, outfile]).ended;
  expect({ out, err }).toEqual({ out: "LockTimeoutError\n", err: "" });
});

test("an installation is small: the package alone, without what only contributors need", () => {
  const entries = readdirSync(installedPath(), { recursive: true, withFileTypes: true });
  const files = entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => relative(installedPath(), join(parentPath, name)));
  const bytes = files.reduce((sum, file) => sum + statSync(installedPath(file)).size, 0);
  expect(bytes).toBeLessThan(MAX_BYTES);
  expect(files.length).toBeLessThan(MAX_FILES);
  expect(readdirSync(join(project, "node_modules")).filter((name) => !/^\.|^@?typescript$/.test(name))).toEqual([
    "holdfast",
  ]);
  expect(files.filter((file) => /\.map$|^(?:src|docs|examples|test)\/|(?<!\.d)\.ts$/.test(file))).toEqual([]);
  expect(files).toEqual(
    expect.arrayContaining([
      "README.md",
      "LICENSE",
      "CHANGELOG.md",
      "SECURITY.md",
      "deploy/holdfast.service",
      "dist/holdfast.1",
      "dist/THIRD-PARTY-LICENSES.txt",
    ]),
  );
});

test("the notices of the libraries whose code the package contains", () => {
  const notices = readFileSync(installedPath("dist/THIRD-PARTY-LICENSES.txt"), "utf8");
  for (const name of ["@hono/node-server", "@hono/zod-openapi", "commander", "hono", "zod"])
    expect(notices).toContain(`\n${name}\n---`);
});

test("no page tells users to install the name from a registry, where it belongs to another project", () => {
  const fetched = /\bnpm (?:i|install|add|exec)\b[^`\n]* holdfast(?![-\w./])|\b(?:pnpm|yarn) (?:add|dlx) holdfast\b/;
  const mentions = readPages().flatMap(({ path, text }) =>
    text
      .split("\n")
      .filter((line) => fetched.test(line))
      .map((line) => `${path}: ${line}`),
  );
  expect(mentions).toEqual([]);
  // outside of a directory that has it, npx would download it
  const pagesByName = readPages().flatMap(({ path, text }) => (/^npx holdfast/m.test(text) ? [path] : []));
  expect(pagesByName).toEqual([]);
});

const PROGRAM = `
import { connect } from "holdfast";
async function main() {
  const locks = await connect();
  await locks.using("bundled", { wait: "20s" }, async ({ keys }) => console.log("held " + keys));
  await locks.close();
}
main().catch(({ code, message }) => console.log(code, message));
`;

describe.each(["esm", "cjs"] as const)("bundled by esbuild as %s", (format) => {
  const bundle = async (outfile: string) => {
    writeFileSync(join(project, "app.js"), PROGRAM);
    // the banner that bundles of CommonJS packages need
    const js = 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);';
    const { warnings, metafile } = await build({
      absWorkingDir: project,
      entryPoints: ["app.js"],
      outfile,
      bundle: true,
      platform: "node",
      format,
      metafile: true,
      logLevel: "silent",
      ...(format === "esm" && { banner: { js } }),
    });
    return { warnings, metafile };
  };
  const name = format === "esm" ? "bundle.mjs" : "bundle.cjs";

  test("no warning is printed, and the default server is started where the package is beside the bundle", async () => {
    const { warnings } = await bundle(`out/${name}`);
    expect(warnings).toEqual([]);
    const { out, err } = await sandbox.startProgram([process.execPath, join(project, "out", name)], {
      env: packageFiles("beside"),
    }).ended;
    expect({ out, err }).toEqual({ out: "held bundled\n", err: "" });
  });

  test("without the package a bundle works with a running server, and otherwise reports what is missing", async () => {
    await bundle(`out/${name}`);
    const bundleFolder = mkdtempSync("/tmp/hf-bundle-");
    try {
      cpSync(join(project, "out", name), join(bundleFolder, "dist", name));
      // another program, in the place of one of the package's own files
      mkdirSync(join(bundleFolder, "cli"));
      writeFileSync(join(bundleFolder, "package.json"), JSON.stringify({ name: "another-program", type: "module" }));
      writeFileSync(
        join(bundleFolder, "cli/main.js"),
        "import { writeFileSync } from 'node:fs'; writeFileSync('started', '');",
      );
      const run = (env: Record<string, string>) =>
        sandbox.startProgram([process.execPath, join(bundleFolder, "dist", name)], { cwd: bundleFolder, env }).ended;
      expect((await run(packageFiles("alone"))).out).toMatch(
        /^LOCK_STORE_FAILED .*the program to start one was not found: run `holdfast serve`/,
      );
      expect(readdirSync(bundleFolder).sort()).toEqual(["cli", "dist", "package.json"]);
      await sandbox.run(["run", "k", "--", "true"]);
      expect((await run({})).out).toBe("held bundled\n");
    } finally {
      rmSync(bundleFolder, { recursive: true });
    }
  });

  test("a bundle in one file is no larger than its drivers, and contains no server", async () => {
    const { metafile } = await bundle(`out/${name}`);
    const [output] = Object.values(metafile.outputs);
    const { bytes = 0, inputs = {} } = output ?? {};
    expect(bytes).toBeGreaterThan(10_000);
    expect(bytes).toBeLessThan(1_100_000);
    expect(Object.keys(inputs).filter((input) => /\/(?:cli|server)\//.test(input))).toEqual([]);
  });
});

test("a bundle split into chunks loads no store that the program does not use", async () => {
  const { metafile } = await build({
    absWorkingDir: project,
    stdin: { contents: PROGRAM, resolveDir: project },
    outdir: join(project, "split"),
    bundle: true,
    splitting: true,
    platform: "node",
    format: "esm",
    metafile: true,
    logLevel: "silent",
  });
  const outputs = new Map(Object.entries(metafile.outputs));
  const loadedModules = new Set<string>();
  const load = (path: string): void => {
    if (loadedModules.has(path)) return;
    loadedModules.add(path);
    for (const { path: next, kind } of outputs.get(path)?.imports ?? []) if (kind === "import-statement") load(next);
  };
  load([...outputs].find(([, { entryPoint }]) => entryPoint === "<stdin>")?.[0] as string);
  const bytes = [...loadedModules].reduce((sum, path) => sum + (outputs.get(path)?.bytes ?? 0), 0);
  expect(bytes).toBeLessThan(172_000);
});

// About 58 kB of it are the scripts, which are not minified: their errors name their lines.
test("a minified bundle of locks on Redis is no larger than 205 kB", async () => {
  const { outputFiles } = await build({
    absWorkingDir: project,
    stdin: {
      contents: `
        import { createLocks } from "holdfast";
        import { redis } from "holdfast/redis";
        export default (client) => createLocks(redis(client));`,
      resolveDir: project,
    },
    write: false,
    bundle: true,
    minify: true,
    platform: "node",
    format: "esm",
    packages: "bundle",
    external: ["ioredis", "redis", "iovalkey"],
    logLevel: "silent",
  });
  const bytes = outputFiles[0]?.contents.length ?? 0;
  expect(bytes).toBeGreaterThan(100_000);
  expect(bytes).toBeLessThan(205_000);
});

/** A directory, and so a server, of its own. */
function packageFiles(name: string): { HOLDFAST_DIR: string } {
  return { HOLDFAST_DIR: join(sandbox.folder, `${name}-${relative("/", project)}`.replaceAll("/", "-")) };
}
