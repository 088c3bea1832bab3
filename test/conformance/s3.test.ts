import { afterAll, beforeAll, vi } from "vitest";
import { documentConformance } from "../support/stores/document-conformance.ts";
import type { StoreAddress } from "../support/stores/document-stores.ts";
import { AWS_ENVIRONMENT, createBucket } from "../support/stores/document-stores.ts";
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
    const address: StoreAddress = { kind: "s3", endpoint: server.endpoint, bucket: `locks-${++bucketCount}` };
    await createBucket(address);
    return address;
  },
  canWatch: false,
  timeScale: 2,
});
