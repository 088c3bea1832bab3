import { afterAll, beforeAll, vi } from "vitest";
import { documentConformance } from "../support/stores/document-conformance.ts";
import type { StoreAddress } from "../support/stores/document-stores.ts";
import { AWS_ENVIRONMENT, createBucket } from "../support/stores/document-stores.ts";
import type { Dynalite } from "../support/stores/dynalite.ts";
import { startDynalite } from "../support/stores/dynalite.ts";

let server: Dynalite;
let tableCount = 0;

beforeAll(async () => {
  for (const [name, value] of Object.entries(AWS_ENVIRONMENT)) vi.stubEnv(name, value);
  server = await startDynalite();
}, 60_000);
afterAll(async () => {
  await server.dispose();
  vi.unstubAllEnvs();
});

documentConformance("dynamodb", {
  async address() {
    const address: StoreAddress = { kind: "dynamodb", endpoint: server.endpoint, table: `locks-${++tableCount}` };
    await createBucket(address);
    return address;
  },
  canWatch: false,
  timeScale: 1,
});
