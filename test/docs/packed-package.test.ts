// The package as users get it: packed, installed into an empty directory, run and bundled there. Nothing is downloaded:
// its dependencies are linked from this repository.

import { execFile } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { findLinks, parsePage, readPages } from "../../scripts/check/markdown.ts";
import { cliSandbox } from "../support/cli-sandbox.ts";

const sandbox = cliSandbox();
const runNode = promisify(execFile);
const { dependencies, version } = JSON.parse(readFileSync("package.json", "utf8")) as {
  readonly dependencies: Readonly<Record<string, string>>;
  readonly version: string;
};

let project = "";

beforeAll(async () => {
  project = mkdtempSync("/tmp/hf-packed-");
  const npmFlags = ["--ignore-scripts", "--silent"];
  await runNode("npm", ["pack", ...npmFlags, "--pack-destination", project]);
  writeFileSync(join(project, "package.json"), JSON.stringify({ name: "project", private: true, type: "module" }));
  const linked = Object.keys(dependencies).map((name) => resolve("node_modules", name));
  const offline = ["--offline", "--no-audit", "--no-fund", "--no-package-lock"];
  await runNode("npm", ["install", ...npmFlags, ...offline, `./holdfast-${version}.tgz`, ...linked], { cwd: project });
}, 120_000);
afterAll(() => rmSync(project, { recursive: true, force: true }));

const installedPath = (...path: readonly string[]): string => join(project, "node_modules/holdfast", ...path);

test("the README's program and the command run", async () => {
  const page = parsePage({ path: "README.md", text: readFileSync(installedPath("README.md"), "utf8") });
  const program = join(project, "readme.mjs");
  writeFileSync(program, page.blocks.find(({ language }) => language === "ts")?.code ?? "throw new Error('none')");
  const result = await sandbox.startProgram([process.execPath, program], { cwd: project }).ended;
  expect(result).toMatchObject({ code: 0, err: "", out: expect.stringMatching(/^nobody else works on invoice:42; /) });
  const bin = join(project, "node_modules/.bin/holdfast");
  expect(await sandbox.startProgram([bin, "run", "k", "--", "echo", "ran"], { cwd: project }).ended).toMatchObject({
    code: 0,
    out: "ran\n",
    err: "",
  });
  expect((await sandbox.startProgram([bin, "--version"]).ended).out).toBe(`${version}\n`);
});

test("the package contains the pages and everything they link to, except what only contributors need", () => {
  const pages = readPages(installedPath()).map(({ path, text }) => ({ path: relative(installedPath(), path), text }));
  expect(pages.map(({ path }) => path)).toEqual(
    expect.arrayContaining([
      "README.md",
      "SECURITY.md",
      "docs/guide/cli.md",
      "docs/reference/api.md",
      "deploy/README.md",
    ]),
  );
  const brokenLinks = pages.flatMap((page) =>
    findLinks(page)
      .map(({ target }) => join(dirname(page.path), (target.split("#")[0] as string) || page.path.replace(/.*\//, "")))
      .filter((path) => !/^(?:scripts|test|bench)\//.test(path) && !existsSync(installedPath(path)))
      .map((path) => `${page.path}: ${path}`),
  );
  expect(brokenLinks).toEqual([]);
  expect(existsSync(installedPath("dist/holdfast.1"))).toBe(true);
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
        /^DRIVER_FAILED .*the program to start one was not found: run `holdfast serve`/,
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
    expect(bytes).toBeLessThan(830_000);
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
  expect(bytes).toBeLessThan(130_000);
});

/** A directory, and so a server, of its own. */
function packageFiles(name: string): { HOLDFAST_DIR: string } {
  return { HOLDFAST_DIR: join(sandbox.folder, `${name}-${relative("/", project)}`.replaceAll("/", "-")) };
}
