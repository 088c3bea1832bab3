// The blocks of the page about S3 run as their reader would run them.

import { CreateBucketCommand, S3Client } from "@aws-sdk/client-s3";
import { expect, test, vi } from "vitest";
import { runSnippet } from "../../support/page-snippet.ts";
import { AWS_ENVIRONMENT } from "../../support/stores/document-stores.ts";
import { startMoto } from "../../support/stores/moto.ts";

test("the blocks of the page run: s3", async () => {
  for (const [name, value] of Object.entries(AWS_ENVIRONMENT)) vi.stubEnv(name, value);
  const server = await startMoto();
  const admin = new S3Client({ endpoint: server.endpoint, forcePathStyle: true });
  const settings = { LocationConstraint: "eu-west-1" } as const;
  await admin.send(new CreateBucketCommand({ Bucket: "my-bucket", CreateBucketConfiguration: settings }));
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
  admin.destroy();
  await server.dispose();
  vi.unstubAllEnvs();
});
