// The blocks of the page about DynamoDB run as their reader would run them.

import { expect, test, vi } from "vitest";
import { runSnippet } from "../../support/page-snippet.ts";
import { AWS_ENVIRONMENT, createBucket } from "../../support/stores/document-stores.ts";
import { startDynalite } from "../../support/stores/dynalite.ts";

test("the blocks of the page run: dynamodb", async () => {
  for (const [name, value] of Object.entries(AWS_ENVIRONMENT)) vi.stubEnv(name, value);
  const server = await startDynalite();
  await createBucket({ kind: "dynamodb", endpoint: server.endpoint, table: "locks" });
  const first = await runSnippet({
    page: "dynamodb",
    replaced: { "region=eu-west-1": `region=eu-west-1&endpoint=${server.endpoint}` },
  });
  expect(first).toEqual({ code: 0, out: "mine, with token 1\n", err: "" });
  const second = await runSnippet({
    page: "dynamodb",
    block: 1,
    given: `
      export async function after({ locks }) {
        console.log(typeof (await locks.acquire("key")).token);
        await locks.close();
      }`,
    replaced: { '"eu-west-1", maxAttempts': `"eu-west-1", endpoint: "${server.endpoint}", maxAttempts` },
  });
  expect(second).toEqual({ code: 0, out: "bigint\n", err: "" });
  await server.dispose();
  vi.unstubAllEnvs();
});
