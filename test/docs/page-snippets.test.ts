// A block of each page of the guide runs as its reader would run it. Those of stores run in the suites of the stores.

import { readdirSync, readFileSync } from "node:fs";
import { basename } from "node:path";
import { describe, expect, test } from "vitest";
import { parsePage } from "../../scripts/check/markdown.ts";
import { LANGUAGES } from "../../scripts/check/snippets.ts";
import type { PageSnippet } from "../support/page-snippet.ts";
import { runSnippet } from "../support/page-snippet.ts";

const LOCKS = `
import { connect } from "holdfast";
export const locks = await connect();
export const key = "key";
export async function work() { console.log("worked"); }
`;

const SNIPPETS: readonly (PageSnippet & { readonly out: string })[] = [
  { page: "quick-start", out: "" },
  { page: "waiting-and-order", block: 1, given: LOCKS, out: "worked\n" },
  { page: "safety-and-fencing", block: 1, given: LOCKS, out: "" },
  { page: "cached-locks", out: "kept for the next request\n" },
  {
    page: "decorators",
    given: `export const charge = async (id) => console.log("charged", id);`,
    out: "charged o-42\n",
  },
  { page: "faq", given: `${LOCKS} export const url = "memory:";`, out: "" },
  { page: "observability", given: LOCKS, out: "" },
  {
    page: "serverless",
    given: `
      export const work = async (id, token) => console.log("works on", id, typeof token);
      export const after = async ({ handler }) => console.log(await handler({ id: "7" }));`,
    out: "works on 7 bigint\n{ statusCode: 200 }\n",
  },
  {
    page: "testing",
    given: `
      export class Orders {
        constructor(locks) { this.locks = locks; }
        pay(id) { return this.locks.using("order:" + id, { wait: "5s" }, () => "paid"); }
      }
      process.on("exit", (code) => console.log("exit code", code));`,
    out: "exit code 0\n",
  },
  {
    page: "web-locks",
    given: `export const writeReport = async (token, signal) => console.log(typeof token, signal.aborted);`,
    out: "bigint false\ntrue 0 0\n",
  },
  {
    page: "web-frameworks",
    given: `
      export const express = { json: () => undefined };
      export const app = { post: (path, ...handlers) => console.log(path, handlers.length) };`,
    out: "/orders/:id/pay 3\n",
  },
  {
    page: "nestjs",
    given: `
      export const ConfigModule = {};
      export class ConfigService {}`,
    out: "",
  },
  {
    page: "coming-from",
    given: `${LOCKS}
      export async function withOldLock(key, body) {
        console.log("old lock of", key);
        await body();
      }`,
    out: "old lock of key\nworked\n",
  },
  {
    page: "coming-from-commands",
    block: 2,
    given: `${LOCKS}
      export class Mutex { runExclusive(body) { return body(); } }`,
    out: "worked\n",
  },
  { page: "coming-from-java", given: LOCKS, out: "worked\n" },
  { page: "coming-from-nodes", block: 1, given: LOCKS, out: "worked\n" },
  { page: "coming-from-redis", block: 1, given: LOCKS, out: "worked\n" },
  {
    page: "performance",
    block: 1,
    given: `
      import { connect } from "holdfast";
      export const locks = await connect();
      export async function work() {}`,
    out: "1000 grants, median wait ",
  },
  { page: "sqlite", out: "" },
];

/** Run by test/integration/<store>/guide.test.ts, or by the suite named. */
const ELSEWHERE: readonly string[] = [
  "advisory-locks",
  "coming-from-databases",
  "fencing-your-data",
  "optimistic",
  "postgres",
  "mysql",
  "redis",
  "redis-failures",
  "data-loss",
  "coming-from-curator",
  "etcd",
  "zookeeper",
  "nats",
  "dynamodb",
  "s3",
  "leader-election", // examples.test.ts
];
/** It connects by TLS: integration/server follows the steps of the page with a server of its own. */
const NOT_RUN: readonly string[] = ["server"];

describe("a block of the page runs", () => {
  test.each(SNIPPETS)("$page", async ({ out, ...snippet }) => {
    const result = await runSnippet(snippet);
    expect(result.err).toBe("");
    expect(result.code).toBe(0);
    expect(result.out).toContain(out);
  });
});

test("every page of the guide with code has a block that runs", () => {
  const pages = readdirSync("docs/guide").filter((name) => name.endsWith(".md"));
  const withCode = pages.filter((name) =>
    parsePage({ path: name, text: readFileSync(`docs/guide/${name}`, "utf8") }).blocks.some(({ language }) =>
      LANGUAGES.has(language),
    ),
  );
  const run = [...SNIPPETS.map(({ page }) => page), ...ELSEWHERE, ...NOT_RUN];
  expect(withCode.map((name) => basename(name, ".md")).sort()).toEqual([...run].sort());
});
