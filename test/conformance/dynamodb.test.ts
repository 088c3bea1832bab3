import { CreateTableCommand, DynamoDBClient } from "@aws-sdk/client-dynamodb";
import { afterAll, beforeAll, vi } from "vitest";
import { documentConformance } from "../support/stores/document-conformance.ts";
import { AWS_ENVIRONMENT } from "../support/stores/document-stores.ts";
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
    // closed at once: a test must leave no connection
    const admin = new DynamoDBClient({ endpoint: server.endpoint });
    const table = `locks-${++tableCount}`;
    await admin.send(
      new CreateTableCommand({
        TableName: table,
        BillingMode: "PAY_PER_REQUEST",
        AttributeDefinitions: [{ AttributeName: "name", AttributeType: "S" }],
        KeySchema: [{ AttributeName: "name", KeyType: "HASH" }],
      }),
    );
    admin.destroy();
    return { kind: "dynamodb", endpoint: server.endpoint, table };
  },
  canWatch: false,
  timeScale: 1,
});
