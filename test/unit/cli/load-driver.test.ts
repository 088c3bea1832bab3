import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { loadDriver, resolveModulePath } from "../../../src/cli/load-driver.ts";

let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "holdfast-modules-"));
  vi.spyOn(process, "cwd").mockReturnValue(folder);
});

afterAll(() => {
  vi.restoreAllMocks();
  rmSync(folder, { recursive: true });
});

function writeModule(path: string, text: string): string {
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  writeFileSync(join(folder, path), text);
  return path;
}

const STORE = `{ name: "own", read: async () => null, write: async () => "conflict" }`;
const FUNCTIONS = ["open", "claim", "renew", "release", "list", "close"];
const driverWithout = (missing: string): string =>
  `{ name: "own", ${FUNCTIONS.filter((name) => name !== missing).map((name) => `async ${name}() {}`)} }`;

describe("what a module may export", () => {
  test.each([
    ["store.mjs", `export default ${STORE}`],
    ["driver.mjs", `export default ${driverWithout("")}`],
    ["function.mjs", `export default () => (${STORE})`],
    ["async-function.mjs", `export default async () => (${driverWithout("")})`],
    ["common.cjs", `module.exports = ${STORE}`],
    ["compiled.cjs", `exports.__esModule = true; exports.default = ${STORE}`],
    ["class.mjs", `class Store { name = "own"; async read() {} async write() {} }; export default new Store()`],
    ["awaits.mjs", `const name = await Promise.resolve("own"); export default { ...${STORE}, name }`],
  ])("%s", async (path, text) => {
    const driver = await loadDriver(`./${writeModule(path, text)}`);
    expect(driver.name).toBe("own");
    for (const name of FUNCTIONS) expect(driver).toHaveProperty(name, expect.any(Function));
  });

  test("a package of the current directory, whose own files do not count", async () => {
    writeModule("node_modules/own-store/package.json", `{ "exports": "./main.mjs" }`);
    const path = writeModule("node_modules/own-store/main.mjs", `export default ${STORE}`);
    expect((await loadDriver("own-store")).name).toBe("own");
    expect(resolveModulePath("own-store")).toBe(join(folder, path));
  });

  test("a file without ./ in front of it comes before a package of that name", () => {
    writeModule("node_modules/both.mjs/package.json", `{ "main": "main.js" }`);
    writeModule("node_modules/both.mjs/main.js", "");
    expect(resolveModulePath(writeModule("both.mjs", ""))).toBe(join(folder, "both.mjs"));
  });

  test("to open a store again is to open the same driver, so that the function is called once", async () => {
    const path = writeModule(
      "once.mjs",
      `let calls = 0; export default () => ({ ...${STORE}, name: "own" + ++calls })`,
    );
    expect((await loadDriver(path)).name).toBe("own1");
    expect(await loadDriver(path)).toBe(await loadDriver(path));
  });

  test("a function that failed is called again", async () => {
    const path = writeModule(
      "later.mjs",
      `let calls = 0; export default () => { if (++calls === 1) throw new Error("not yet"); return ${STORE}; }`,
    );
    await expect(loadDriver(path)).rejects.toThrow("not yet");
    expect((await loadDriver(path)).name).toBe("own");
  });
});

const EXPECTED = "must be a driver, a store with read() and write(), or a function that returns one of them, not";

describe("what is wrong with a module", () => {
  test.each([
    ["empty.mjs", "", " has no default export"],
    ["named.mjs", "export const a = 1; export const store = 2;", " has no default export, only a, store"],
    ["text.mjs", `export default "store"`, `: its default export ${EXPECTED} "store"`],
    ["null.mjs", "export default null", `: its default export ${EXPECTED} null`],
    ["other.mjs", "export default { get() {} }", `: its default export ${EXPECTED} an object`],
    [
      "half.mjs",
      `export default { name: "own", read() {} }`,
      `: its default export ${EXPECTED} a store without write()`,
    ],
    [
      "nameless.mjs",
      "export default { read() {}, write() {} }",
      `: its default export ${EXPECTED} a store without a name`,
    ],
    [
      "lists.mjs",
      `export default ${driverWithout("list")}`,
      `: its default export ${EXPECTED} a driver without list()`,
    ],
    ["returns.mjs", "export default () => 7", `: what its default export returns ${EXPECTED} 7`],
    ["throws.mjs", `throw new Error("no config\\nat line 2")`, " cannot be loaded: no config"],
    ["throws-text.mjs", `throw "no config"`, " cannot be loaded: no config"],
    ["imports.mjs", `import "./missing.mjs"`, ` cannot be loaded: Cannot find module '`],
    ["bug.mjs", "export default () => missing.value", ": the function that it exports failed: missing is not defined"],
  ])("%s", async (path, text, problem) => {
    const error = await loadDriver(`./${writeModule(path, text)}`).catch((caught: unknown) => caught);
    expect(error).toMatchObject({ kind: "usage", code: 64 });
    expect((error as Error).message.startsWith(`./${path}${problem}`), (error as Error).message).toBe(true);
    expect((error as Error).message).not.toContain("\n");
  });

  test.each([
    ["./missing.mjs", "./missing.mjs does not exist"],
    ["../missing", "../missing does not exist"],
    ["/missing.mjs", "/missing.mjs does not exist"],
    [".", ". is not a file"],
    ["", "the name of the module must not be empty"],
    ["missing", "missing is neither a file nor a package that is found from"],
    ["fs", "fs is neither a file nor a package that is found from"],
  ])("%j", async (text, message) => {
    const error = await loadDriver(text).catch((caught: unknown) => caught);
    expect(error).toMatchObject({
      kind: "usage",
      code: 64,
      message: expect.stringMatching(`^${message.replace(".", "\\.")}`),
    });
  });

  test("a package that exports for import() alone, or is broken", async () => {
    writeModule("node_modules/closed/package.json", `{ "exports": { "import": "./inner.mjs" } }`);
    await expect(loadDriver("closed")).rejects.toThrow(
      /^closed exports nothing that require\(\) finds: name its file instead$/,
    );
    writeModule("node_modules/broken/package.json", "{");
    await expect(loadDriver("broken")).rejects.toThrow(/^broken cannot be loaded: /);
  });
});

describe("a function that cannot reach its store", () => {
  test.each([
    [`new Error("no server is elected")`, "unreachable", "the driver ./KIND.mjs cannot be used: no server is elected"],
    [
      `Object.assign(new Error(""), { code: "ECONNREFUSED" })`,
      "unreachable",
      "the driver ./KIND.mjs refused the connection",
    ],
    [`Object.assign(new Error("no right"), { code: "LOCK_STORE_REFUSED" })`, "refused", "no right"],
  ])("%s", async (error, kind, message) => {
    const path = writeModule(`${kind}-${error.length}.mjs`, `export default async () => { throw ${error}; }`);
    await expect(loadDriver(`./${path}`)).rejects.toMatchObject({ kind, message: message.replace("KIND.mjs", path) });
  });
});
