import { CreateBucketCommand, S3Client } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, vi } from "vitest";
import { documentConformance } from "../support/stores/document-conformance.ts";
import { AWS_ENVIRONMENT } from "../support/stores/document-stores.ts";
import type { Moto } from "../support/stores/moto.ts";
import { startMoto } from "../support/stores/moto.ts";

let server: Moto;
let bucketCount = 0;

beforeAll(async () => {
  for (const [name, value] of Object.entries(AWS_ENVIRONMENT)) vi.stubEnv(name, value);
  server = await startMoto();
}, 60_000);
afterAll(async () => {
  await server.dispose();
  vi.unstubAllEnvs();
});

documentConformance("s3", {
  async address() {
    // closed at once: a test must leave no connection
    const admin = new S3Client({ endpoint: server.endpoint, forcePathStyle: true });
    const bucket = `locks-${++bucketCount}`;
    const settings = { LocationConstraint: AWS_ENVIRONMENT.AWS_REGION } as const;
    await admin.send(new CreateBucketCommand({ Bucket: bucket, CreateBucketConfiguration: settings }));
    admin.destroy();
    return { kind: "s3", endpoint: server.endpoint, bucket };
  },
  canWatch: false,
  timeScale: 2,
});
