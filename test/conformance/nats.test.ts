import { Kvm } from "@nats-io/kv";
import type { NatsConnection } from "@nats-io/transport-node";
import { connect } from "@nats-io/transport-node";
import { afterAll, beforeAll } from "vitest";
import { documentConformance } from "../support/stores/document-conformance.ts";
import type { NatsServer } from "../support/stores/nats.ts";
import { startNats } from "../support/stores/nats.ts";

let server: NatsServer;
let admin: NatsConnection;
let bucketCount = 0;

beforeAll(async () => {
  server = await startNats();
  admin = await connect({ servers: server.address });
}, 60_000);
afterAll(async () => {
  await admin.close();
  await server.dispose();
});

documentConformance("nats", {
  async address() {
    const bucket = `locks-${++bucketCount}`;
    await new Kvm(admin).create(bucket);
    return { kind: "nats", servers: [server.address], bucket };
  },
  canWatch: true,
  timeScale: 1,
});
