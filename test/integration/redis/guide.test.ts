// A block of each page about Redis runs as its reader would run it.

import { expect, test } from "vitest";
import { runSnippet } from "../../support/page-snippet.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";

withRedis((server) => {
  test("the block of the page runs: redis", async () => {
    const url = `${server().url}?silenceWarnings=appendonly,failover`;
    const result = await runSnippet({ page: "redis", replaced: { "redis://localhost:6379": url } });
    expect(result).toMatchObject({ code: 0, err: "" });
    expect(result.out).toMatch(/^mine, with token \d+\n$/);
  });

  test("the block of the page runs: redis-failures", async () => {
    const given = `
      import { Redis } from "ioredis";
      import { createLocks } from "holdfast";
      import { redis } from "holdfast/redis";
      export { createLocks, Redis, redis };
      export const url = ${JSON.stringify(server().url)};`;
    const result = await runSnippet({ page: "redis-failures", given, replaced: { "new Redis()": "new Redis(url)" } });
    expect(result).toEqual({ code: 0, out: "", err: "" });
  });

  test("the block of the page runs: data-loss", async () => {
    const url = `${server().url}?silenceWarnings=appendonly,failover,guardDataLoss&`;
    const result = await runSnippet({ page: "data-loss", replaced: { "redis://localhost:6379?": url } });
    expect(result).toEqual({ code: 0, out: "", err: "" });
  });
});
