// Each rule of `npm run check` finds the fault it exists for, and accepts the nearest valid text.

import { describe, expect, test } from "vitest";
import {
  classTests,
  driversWithoutTimers,
  fileAndFunctionSizes,
  inheritance,
  pureCore,
  weakCollections,
} from "../../../scripts/check/code-rules.ts";
import { findMissingPaths } from "../../../scripts/check/doc-links.ts";
import { importCycles, libraryEntryImports } from "../../../scripts/check/import-graph.ts";
import { importTable } from "../../../scripts/check/import-table.ts";
import { proseFaults } from "../../../scripts/check/prose.ts";
import { findUnlistedRules } from "../../../scripts/check/restated-rules.ts";
import type { SourceTree } from "../../../scripts/check/source-tree.ts";
import { findDeadTargets, parseSource } from "../../../scripts/check/source-tree.ts";
import { findMatrixProblems } from "../../../scripts/check/test-suites.ts";
import { SUITES } from "../../../scripts/test/suites.ts";

function sourceTree(files: Record<string, string>): SourceTree {
  return new Map(Object.entries(files).map(([path, text]) => [path, parseSource(path, text)]));
}

test("a place that restates a rule and is not listed, and a place that is listed and restates none", () => {
  const page = (admission: string, token: string): string =>
    `## The admission rule\n\n| \`${admission}\` | a |\n\n## The token rule\n\n| \`${token}\` | b |\n\n## Last\n`;
  const [hand, walk] = ["src/drivers/redis/lua/lib/hand_on.lua", "src/drivers/redis/lua/lib/push.lua"] as const;
  expect(findUnlistedRules([hand], page(hand, hand))).toEqual([]);
  expect(findUnlistedRules([hand], page(hand, walk))).toEqual([
    `${hand} restates the token rule, and docs/design/rules.md does not list it`,
    `docs/design/rules.md lists ${walk}, which has no comment "restates the token rule"`,
  ]);
});

describe("import table", () => {
  const faultsOf = (path: string, text: string): string[] => importTable(sourceTree({ [path]: text }));

  test.each([
    ["src/lock-table/admission.ts", 'import { x } from "../client/lock.ts";'],
    ["src/lock-table/admission.ts", 'import type { X } from "../errors.ts";'],
    ["src/lock-table/admission.ts", 'type X = import("../client/lock.ts").X;'],
    ["src/spi/driver.ts", 'export { x } from "../lock-table/admission.ts";'],
    ["src/util/keys.ts", 'import { x } from "../lock-table/admission.ts";'],
    ["src/drivers/redis/driver.ts", 'import { x } from "../etcd/driver.ts";'],
    ["src/drivers/redis/driver.ts", 'import { x } from "../../lock-table/table.ts";'],
    ["src/drivers/redis/driver.ts", 'import { x } from "../../protocol/frames.ts";'],
    ["src/client/locks.ts", 'import { x } from "../drivers/memory.ts";'],
    ["src/client/locks.ts", 'await import("../drivers/memory.ts");'],
    ["src/server/server.ts", 'import { x } from "../client/locks.ts";'],
    ["src/server/server.ts", 'import { x } from "./http/http-server.ts";'],
    ["src/server/storage/durable-log.ts", 'import type { X } from "../session/session.ts";'],
    ["src/server/session/session.ts", 'import type { X } from "../local/local-backend.ts";'],
    ["src/server/limits.ts", 'import type { X } from "./config/options.ts";'],
    ["src/cli/main.ts", 'import { x } from "../conformance/context.ts";'],
    ["src/index.ts", "export const x = 1;"],
    ["src/stray/file.ts", ""],
  ])("%s may not: %s", (path, text) => {
    expect(faultsOf(path, text)).toHaveLength(1);
  });

  test.each([
    ["src/lock-table/admission.ts", 'import { x } from "../spi/driver.ts"; import { y } from "./tombstones.ts";'],
    ["src/drivers/memory.ts", 'import { x } from "../lock-table/table.ts";'],
    ["src/drivers/server/driver.ts", 'import { x } from "../../protocol/frames.ts";'],
    ["src/client/driver-url.ts", 'await import("../drivers/memory.ts");'],
    ["src/cli/main.ts", 'import { x } from "../index.ts"; import { y } from "../server/limits.ts";'],
    ["src/server/server.ts", 'await import("../gateway/http/http-server.ts");'],
    ["src/server/local/startup.ts", 'import { x } from "../session/session.ts"; import { y } from "../limits.ts";'],
    ["src/index.ts", 'export { x } from "./client/locks.ts"; export type { Y } from "./spi/driver.ts";'],
  ])("%s may: %s", (path, text) => {
    expect(faultsOf(path, text)).toEqual([]);
  });
});

test("a row of a table that fits no file is reported", () => {
  const tree = sourceTree({ "src/lock-table/admission.ts": "", "src/errors.ts": "" });
  const targets = ["src/lock-table/", "src/errors.ts", "src/lock-table/gone.ts", "src/stray/"];
  expect(findDeadTargets(tree.keys(), targets, "the table")).toEqual([
    "the table names src/lock-table/gone.ts, which does not exist",
    "the table names src/stray/, which does not exist",
  ]);
});

test("import cycles are reported completely, types included, lazy imports not", () => {
  const a = 'import { b } from "./b.ts";';
  const c = 'export { a } from "./a.ts";';
  const files = { "src/a.ts": a, "src/b.ts": 'import { c } from "./c.ts";', "src/c.ts": c };
  expect(importCycles(sourceTree(files))).toEqual(["src/a.ts > src/b.ts > src/c.ts > src/a.ts"]);
  expect(importCycles(sourceTree({ ...files, "src/c.ts": c.replace("export", "export type") }))).toHaveLength(1);
  expect(importCycles(sourceTree({ ...files, "src/c.ts": 'await import("./a.ts");' }))).toEqual([]);
});

test("a library entry reaches only builtins, through lazy imports too", () => {
  const index = 'export { x } from "./client/locks.ts";';
  const reaching = (text: string): string[] =>
    libraryEntryImports(sourceTree({ "src/index.ts": index, "src/client/locks.ts": text }));
  expect(reaching('import { x } from "node:events";')).toEqual([]);
  expect(reaching('import { x } from "commander";')[0]).toContain("src/index.ts > src/client/locks.ts:1");
  expect(reaching('await import("commander");')).toHaveLength(1);
  expect(reaching('await import("../server/server.ts");')).toHaveLength(1);
});

test("claim machine and lock table are pure", () => {
  const faultsOf = (text: string): number => pureCore(sourceTree({ "src/claim/a.ts": text })).length;
  for (const fault of ["Date.now();", "new Date();", "setTimeout(f);", "globalThis.performance.now();"]) {
    expect(faultsOf(fault), fault).toBe(1);
  }
  expect(faultsOf("Math.random();")).toBe(1);
  expect(faultsOf('import "node:fs";')).toBe(1);
  expect(faultsOf("Math.floor(1); entry.Date; const it = { performance: 1 }; // Date.now()")).toBe(0);
});

test("only errors have a base class", () => {
  const faultsOf = (text: string): number => inheritance(sourceTree({ "src/a.ts": text })).length;
  expect(faultsOf("class A extends B {}")).toBe(1);
  expect(faultsOf("const A = class extends EventEmitter {};")).toBe(1);
  expect(faultsOf("class A extends Error {} class C extends AError {} interface I extends J {}")).toBe(0);
  expect(faultsOf("class A implements B {} type T<U extends V> = U;")).toBe(0);
});

test("sizes count methods and nested functions of more than 10 lines on their own", () => {
  const lines = (count: number): string => "f();\n".repeat(count);
  const faultsOf = (text: string): string[] => fileAndFunctionSizes(sourceTree({ "src/a.ts": text }));
  expect(faultsOf(lines(600))).toEqual([]);
  expect(faultsOf(lines(601))).toEqual(["src/a.ts: 601 lines, at most 600"]);
  expect(faultsOf(`function a() {\n${lines(58)}}`)).toEqual([]);
  expect(faultsOf(`function a() {\n${lines(59)}}`)).toEqual(["src/a.ts:1 function a: 61 lines, at most 60"]);
  const nested = (count: number): string => `const b = () => {\n${lines(count)}};\n`;
  expect(faultsOf(`function a() {\n${lines(20)}${nested(50)}${lines(20)}}`)).toEqual([]);
  expect(faultsOf(`function a() {\n${nested(59)}}`)).toEqual(["src/a.ts:2 function b: 61 lines, at most 60"]);
  expect(faultsOf(`function a() {\n${lines(50)}${nested(9)}}`)).toEqual([]);
  expect(faultsOf(`function a() {\n${lines(50)}${nested(8)}}`)).toEqual([
    "src/a.ts:1 function a: 62 lines, at most 60",
  ]);
  const method = (count: number): string => `return {\nb() {\n${lines(count)}},\n};\n`;
  expect(faultsOf(`function a() {\n${lines(50)}${method(8)}}`)).toEqual([]);
});

test("drivers use no timers of Node, whatever their folder, and a reason for an exception holds for its place only", () => {
  const faultsOf = (path: string, text: string): number => driversWithoutTimers(sourceTree({ [path]: text })).length;
  for (const path of ["src/drivers/redis/connection.ts", "src/drivers/server/connection.ts", "src/drivers/memory.ts"]) {
    expect(faultsOf(path, "setInterval(f);"), path).toBe(1);
    expect(faultsOf(path, 'import * as timers from "node:timers/promises";'), path).toBe(1);
    expect(faultsOf(path, "clock.timer(f).set(1);"), path).toBe(0);
  }
  expect(faultsOf("src/drivers/server/autostart.ts", "setTimeout(f);")).toBe(0);
});

test("drivers await in loops with a bound; those without one need a reason", () => {
  const driver = "src/drivers/quorum/driver.ts";
  const faultsOf = (loop: string, path = driver): number =>
    driversWithoutTimers(sourceTree({ [path]: `async function f() { ${loop} }` })).length;
  for (const loop of [
    "while (true) await g();",
    "for (;;) await g();",
    "for (; !closed; ) await g();",
    "do await g(); while (more);",
    "for await (const x of y) g(x);",
  ]) {
    expect(faultsOf(loop), loop).toBe(1);
    expect(faultsOf(loop, "src/drivers/zookeeper/client/zookeeper.ts"), loop).toBe(0);
  }
  for (const loop of [
    "for (const x of y) await g(x);",
    "for (let i = 0; i < 3; i++) await g();",
    "for (let attempt = 1; ; attempt++) await g(attempt);",
    "while (!full && count < MAX) await g();",
    "while (true) g(async () => await x);",
  ]) {
    expect(faultsOf(loop), loop).toBe(0);
  }
});

test("WeakMap and WeakSet need a reason", () => {
  const faultsOf = (path: string, text: string): number => weakCollections(sourceTree({ [path]: text })).length;
  expect(faultsOf("src/client/engine.ts", "const a = new WeakMap<object, string>(); const b = new WeakSet();")).toBe(2);
  expect(faultsOf("src/drivers/sql/clients/pg.ts", "const statuses = new WeakMap();")).toBe(0);
  expect(faultsOf("src/client/engine.ts", "const a = new Map(); let b: WeakMap<object, string>;")).toBe(0);
});

test("instanceof with a class of src is reported, unless the class is an error", () => {
  const classes = "class Session {} class NetError extends Error {} class FatalError extends NetError {}";
  const faultsOf = (path: string, text: string): string[] =>
    classTests(sourceTree({ "src/a.ts": classes, [path]: text }));
  expect(faultsOf("src/b.ts", "if (x instanceof Session) f();")).toEqual([
    "src/b.ts:1 instanceof Session: call a method of it instead",
  ]);
  expect(faultsOf("src/client/locks.ts", "if (x instanceof Session) f();")).toEqual([]);
  expect(faultsOf("src/b.ts", "x instanceof NetError || x instanceof FatalError || x instanceof Set;")).toEqual([]);
});

test("phrases that hide the subject are found in messages and templates, with their lines, and not in names", () => {
  const text = `/** Told by\n * whoever asks. */\nconst nobody = \`\${1} anew \${2} of ours\`;\nf("Nobody");`;
  expect(proseFaults(sourceTree({ "src/a.ts": text }), [])).toEqual([
    'src/a.ts:3 "anew"',
    'src/a.ts:3 "of ours"',
    'src/a.ts:4 "Nobody"',
  ]);
});

test("pages are checked without their code blocks, and pages about the past keep their words", () => {
  const text = "Somebody\n```ts\nnobody\n```\n";
  const faultsOf = (path: string): string[] => proseFaults(sourceTree({}), [{ path, text }]);
  expect(faultsOf("docs/guide/a.md")).toEqual(['docs/guide/a.md:1 "Somebody"']);
  expect(faultsOf("docs/decisions/0001-a.md")).toEqual([]);
});

test("a page that names a file which does not exist is reported with its line, except in the changelog", () => {
  const text =
    "# A page\n\nSee `client/engine.ts`, `src/index.ts` and `client/gone.ts`; add `test/conformance/NAME.test.ts`.\n";
  expect(findMissingPaths([{ path: "docs/page.md", text }])).toEqual(["docs/page.md:3 client/gone.ts does not exist"]);
  expect(findMissingPaths([{ path: "CHANGELOG.md", text }])).toEqual([]);
});

test("a suite that the workflow does not run, or that does not exist, is reported", () => {
  const names = SUITES.map(({ name }) => name).filter((name) => name !== "redis");
  const lines = [...names, "sql"].map((name) => `          - ${name}\n`).join("");
  expect(findMatrixProblems(`      matrix:\n        suite:\n${lines}    steps:\n`)).toEqual([
    ".github/workflows/ci.yml does not run suite redis",
    ".github/workflows/ci.yml runs sql, which is no suite",
  ]);
});
