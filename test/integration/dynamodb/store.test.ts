/** The store on DynamoDB: its functions on a real dynalite, what it refuses, and how it takes the errors of the service. */

import {
  CreateTableCommand,
  DescribeTableCommand,
  DynamoDBClient,
  ListTablesCommand,
  PutItemCommand,
} from "@aws-sdk/client-dynamodb";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import type { DocumentStore } from "../../../src/drivers/document/store.ts";
import { dynamodb } from "../../../src/drivers/dynamodb/driver.ts";
import type { DynamoDbStoreOptions } from "../../../src/drivers/dynamodb/store.ts";
import { dynamoDbStore } from "../../../src/drivers/dynamodb/store.ts";
import type { DriverEvents } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import type { HttpProxy } from "../../support/http-proxy.ts";
import { httpProxy } from "../../support/http-proxy.ts";
import { awsStoreTests } from "../../support/stores/aws-store-tests.ts";
import { documentStoreTests, soon } from "../../support/stores/document-store-tests.ts";
import { AWS_ENVIRONMENT } from "../../support/stores/document-stores.ts";
import { startDynalite } from "../../support/stores/dynalite.ts";
import type { HttpService } from "../../support/stores/http-service.ts";

let server: HttpService;
let proxy: HttpProxy;
let admin: DynamoDBClient;
let tableCount = 0;
const stores: DocumentStore[] = [];

beforeAll(async () => {
  for (const [name, value] of Object.entries(AWS_ENVIRONMENT)) vi.stubEnv(name, value);
  server = await startDynalite();
  proxy = await httpProxy(server.endpoint);
  admin = new DynamoDBClient({ endpoint: server.endpoint });
}, 60_000);
afterEach(async () => {
  for (const store of stores.splice(0)) await store.close?.();
});
afterAll(async () => {
  admin.destroy();
  await proxy.close();
  await server.dispose();
  vi.unstubAllEnvs();
});

const NAME_KEY = [{ name: "name", type: "S", role: "HASH" }] as const;

async function createTable(
  keys: readonly { readonly name: string; readonly type: "S" | "N"; readonly role: "HASH" | "RANGE" }[] = NAME_KEY,
): Promise<string> {
  const table = `locks-${++tableCount}`;
  await admin.send(
    new CreateTableCommand({
      TableName: table,
      BillingMode: "PAY_PER_REQUEST",
      AttributeDefinitions: keys.map(({ name, type }) => ({ AttributeName: name, AttributeType: type })),
      KeySchema: keys.map(({ name, role }) => ({ AttributeName: name, KeyType: role })),
    }),
  );
  await until(
    async () => (await admin.send(new DescribeTableCommand({ TableName: table }))).Table?.TableStatus === "ACTIVE",
    { within: 10_000, what: "the table" },
  );
  return table;
}

async function open(options: DynamoDbStoreOptions): Promise<DocumentStore> {
  const store = dynamoDbStore({ endpoint: proxy.endpoint, ...options });
  stores.push(store);
  await store.open?.(soon());
  return store;
}

documentStoreTests(async () => ({ kind: "dynamodb", endpoint: server.endpoint, table: await createTable() }));

describe("the table", () => {
  test("that does not exist is refused", async () => {
    await expect(open({ table: "none" })).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
      message: expect.stringMatching(/^the table "none" of DynamoDB cannot be used: .*ResourceNotFoundException\)$/),
    });
  });

  test.each([
    ["a sort key", [...NAME_KEY, { name: "sort", type: "S", role: "RANGE" }]],
    ["a number as its key", [{ name: "name", type: "N", role: "HASH" }]],
    ["a key that is called like an attribute of documents", [{ name: "version", type: "S", role: "HASH" }]],
  ] as const)("with %s is refused", async (_, keys) => {
    await expect(open({ table: await createTable(keys) })).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
      message: expect.stringContaining("has another key than locks need"),
    });
  });

  test("that is being created is waited for", async () => {
    const table = await createTable();
    proxy.answerNext(200, JSON.stringify({ Table: { TableStatus: "CREATING" } }));
    await expect(open({ table })).rejects.toThrow(`the table "${table}" of DynamoDB is being created`);
    const driver = dynamodb({ endpoint: proxy.endpoint, table });
    proxy.answerNext(200, JSON.stringify({ Table: { TableStatus: "CREATING" } }));
    await driver.open({} as DriverEvents);
    await driver.close();
  });

  test("may have a key of any name", async () => {
    const store = await open({ table: await createTable([{ name: "pk", type: "S", role: "HASH" }]) });
    await store.write("locks-0", Buffer.from("text"), null, soon());
    expect(Buffer.from((await store.read("locks-0", soon()))?.bytes ?? []).toString()).toBe("text");
  });

  test("has an item of another program under the name: it is passed on, and never overwritten", async () => {
    const table = await createTable();
    await admin.send(new PutItemCommand({ TableName: table, Item: { name: { S: "locks-0" }, version: { N: "1" } } }));
    const store = await open({ table });
    expect(await store.read("locks-0", soon())).toEqual({ bytes: new Uint8Array(), version: "" });
    for (const version of [null, "", "1"]) {
      expect(await store.write("locks-0", new Uint8Array(1), version, soon())).toBe("conflict");
    }
  });

  test("that deletes items by an attribute is named by doctor", async () => {
    const store = await open({ table: await createTable() });
    expect((await store.diagnose?.())?.[0]).toEqual({ status: "ok", name: "ttl attribute", message: "none" });
    const description = { TimeToLiveStatus: "ENABLED", AttributeName: "expires" };
    proxy.answerNext(200, JSON.stringify({ TimeToLiveDescription: description }));
    expect((await store.diagnose?.())?.[0]).toMatchObject({
      status: "warn",
      message: 'the table deletes items by their attribute "expires", which those of locks do not have',
    });
    proxy.answerNext(400, JSON.stringify({ __type: "x#AccessDeniedException", message: "no right" }));
    expect((await store.diagnose?.())?.[0]).toMatchObject({ status: "unknown" });
  });
});

awsStoreTests({
  proxy: () => proxy,
  open: async (options) => open({ ...options, table: await createTable() }),
  createClient: () => new DynamoDBClient({ endpoint: proxy.endpoint, maxAttempts: 3 }),
  use: (client) => client.send(new ListTablesCommand({})),
  writeName: "PutItem",
  errorOf: (code) => JSON.stringify({ __type: `com.amazonaws.dynamodb.v20120810#${code}`, message: "the message" }),
  temporary: [
    [400, "ProvisionedThroughputExceededException"],
    [400, "ThrottlingException"],
    [500, "InternalServerError"],
    [503, "ServiceUnavailable"],
  ],
  lasting: [
    [400, "AccessDeniedException"],
    [400, "UnrecognizedClientException"],
  ],
});
