// The blocks of the page about S3 run as their reader would run them.

import { expect, test, vi } from "vitest";
import { runSnippet } from "../../support/page-snippet.ts";
import { AWS_ENVIRONMENT, createBucket } from "../../support/stores/document-stores.ts";
import { startMoto } from "../../support/stores/moto.ts";

test("the blocks of the page run: s3", async () => {
  for (const [name, value] of Object.entries(AWS_ENVIRONMENT)) vi.stubEnv(name, value);
  const server = await startMoto();
  await createBucket({ kind: "s3", endpoint: server.endpoint, bucket: "my-bucket" });
  const first = await runSnippet({
    page: "s3",
    replaced: { "region=eu-west-1": `region=eu-west-1&endpoint=${server.endpoint}` },
  });
  expect(first).toEqual({ code: 0, out: "mine, with token 1\n", err: "" });
  const second = await runSnippet({
    page: "s3",
    block: 1,
    given: `
      export async function after({ locks }) {
        console.log(typeof (await locks.acquire("key")).token);
        await locks.close();
      }`,
    replaced: {
      '"eu-west-1", maxAttempts': `"eu-west-1", endpoint: "${server.endpoint}", forcePathStyle: true, maxAttempts`,
    },
  });
  expect(second).toEqual({ code: 0, out: "bigint\n", err: "" });
  await server.dispose();
  vi.unstubAllEnvs();
});
