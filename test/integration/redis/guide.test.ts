// The first block of the page about Redis runs as its reader would run it.

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
});
