import { afterAll, beforeAll } from "vitest";
import { documentConformance } from "../support/stores/document-conformance.ts";
import type { StoreAddress } from "../support/stores/document-stores.ts";
import { createBucket } from "../support/stores/document-stores.ts";
import type { NatsServer } from "../support/stores/nats.ts";
import { startNats } from "../support/stores/nats.ts";

let server: NatsServer;
let bucketCount = 0;

beforeAll(async () => {
  server = await startNats();
}, 60_000);
afterAll(() => server.dispose());

documentConformance("nats", {
  async address() {
    const address: StoreAddress = { kind: "nats", servers: [server.address], bucket: `locks-${++bucketCount}` };
    await createBucket(address);
    return address;
  },
  canWatch: true,
  timeScale: 1,
});
