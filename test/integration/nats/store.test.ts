/** The store on NATS KV: its functions on a real server, its watch, its connection, and what it refuses. */

import { Kvm } from "@nats-io/kv";
import type { NatsConnection } from "@nats-io/transport-node";
import { connect } from "@nats-io/transport-node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { DocumentStore } from "../../../src/drivers/document/store.ts";
import type { NatsStoreOptions } from "../../../src/drivers/nats/store.ts";
import { natsStore } from "../../../src/drivers/nats/store.ts";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { documentStoreTests, soon } from "../../support/stores/document-store-tests.ts";
import type { NatsServer } from "../../support/stores/nats.ts";
import { startNats } from "../../support/stores/nats.ts";

const PASSWORD = "pass-of-alice";
const SETTINGS = `
jetstream: { store_dir: DATA }
accounts: {
  LOCKS: {
    jetstream: enabled
    users: [
      { user: admin, password: "${PASSWORD}" }
      { user: uninformed, password: "${PASSWORD}", permissions: { publish: { deny: ["$JS.API.STREAM.INFO.>"] } } }
      { user: reader, password: "${PASSWORD}", permissions: { publish: { deny: ["$KV.>"] } } }
    ]
  }
  PLAIN: { users: [{ user: plain, password: "${PASSWORD}" }] }
}
no_auth_user: admin
`;

let server: NatsServer;
let admin: NatsConnection;
let bucketCount = 0;
const stores: DocumentStore[] = [];

beforeAll(async () => {
  server = await startNats(SETTINGS);
  admin = await connect({ servers: server.address });
}, 60_000);
afterEach(async () => {
  for (const store of stores.splice(0)) await store.close?.();
});
afterAll(async () => {
  await admin.close();
  await server.dispose();
});

async function createBucket(options: object = {}): Promise<string> {
  const bucket = `locks-${++bucketCount}`;
  await new Kvm(admin).create(bucket, options);
  return bucket;
}

function storeOf(options: NatsStoreOptions): DocumentStore {
  const store = natsStore({ servers: [server.address], ...options });
  stores.push(store);
  return store;
}

documentStoreTests(async () => ({ kind: "nats", servers: [server.address], bucket: await createBucket() }));

describe("the bucket", () => {
  test("that does not exist is refused", async () => {
    const store = storeOf({ bucket: "none" });
    const message =
      'the bucket "none" of NATS cannot be used: it does not exist. Create it, for example: nats kv add NAME --replicas 3';
    await expect(store.open?.(soon())).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED", message });
    await expect(store.read("locks-0", soon())).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED" });
    await expect(store.write("locks-0", new Uint8Array(1), null, soon())).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
    });
  });

  test.each([
    ["a ttl", { ttl: 60_000 }, "it has a ttl"],
    ["a limit of its size", { max_bytes: 1_000_000 }, "it has a limit of its size (maxBytes)"],
    ["values that are too short", { maxValueSize: 1_000 }, "its values may have 1000 bytes"],
    ["no file", { storage: "memory" }, "it is kept in memory"],
  ])("with %s is refused", async (_, options, reason) => {
    const store = storeOf({ bucket: await createBucket(options) });
    await expect(store.open?.(soon())).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
      message: expect.stringContaining(`cannot keep locks: ${reason}`),
    });
  });

  test("with one replica is named by doctor", async () => {
    const store = storeOf({ bucket: await createBucket() });
    await store.open?.(soon());
    const checks = await store.diagnose?.();
    expect(checks?.[0]).toMatchObject({ name: "replicas", status: "warn", message: "one server keeps the bucket" });
  });

  test("may be used without the right to read its settings", async () => {
    const store = storeOf({ bucket: await createBucket(), user: "uninformed", password: PASSWORD });
    await store.open?.(soon());
    await store.write("locks-0", new Uint8Array(1), null, soon());
    expect((await store.diagnose?.())?.[0]).toMatchObject({ name: "replicas", status: "unknown" });
  });

  test("has the bytes of another program under the name", async () => {
    const bucket = await createBucket();
    const kv = await new Kvm(admin).open(bucket);
    await kv.put("locks-0", "of another program");
    const found = await storeOf({ bucket }).read("locks-0", soon());
    expect(Buffer.from(found?.bytes ?? []).toString()).toBe("of another program");
  });

  test("has no document under a name that was deleted, and can have one again", async () => {
    const bucket = await createBucket();
    const kv = await new Kvm(admin).open(bucket);
    await kv.put("locks-0", "text");
    await kv.delete("locks-0");
    const store = storeOf({ bucket });
    expect(await store.read("locks-0", soon())).toBe(null);
    expect(await store.write("locks-0", new Uint8Array(1), null, soon())).toEqual({ version: "3" });
  });
});

describe("a login", () => {
  test("that is wrong is refused, without the password", async () => {
    const store = storeOf({ bucket: "any", user: "admin", password: "wrong-secret" });
    const error = await store.open?.(soon()).then(String, (error: Error) => error);
    expect(error).toMatchObject({
      code: "LOCK_STORE_REFUSED",
      message: 'the bucket "any" of NATS cannot be used: the server refused the user, password or token',
    });
  });

  test("without the right to write is refused when it writes", async () => {
    const store = storeOf({ bucket: await createBucket(), user: "reader", password: PASSWORD });
    await store.open?.(soon());
    await expect(store.write("locks-0", new Uint8Array(1), null, soon())).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
      message: expect.stringContaining("Permissions Violation"),
    });
  });

  test("to an account without JetStream is refused", async () => {
    const store = storeOf({ bucket: "any", user: "plain", password: PASSWORD });
    await expect(store.open?.(soon())).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
      message: 'the bucket "any" of NATS cannot be used: the server or account has no JetStream',
    });
  });
});

describe("a watch", () => {
  test("tells of each change, of no other document, and nothing after its end", async () => {
    const store = storeOf({ bucket: await createBucket() });
    let count = 0;
    const stop = store.watch?.("locks-0", () => count++);
    // that it has begun is told as well
    await until(() => count === 1, { within: 10_000, what: "the watch" });
    const first = await store.write("locks-0", new Uint8Array(1), null, soon());
    await until(() => count === 2, { within: 10_000, what: "the change" });
    await store.write("locks-1", new Uint8Array(1), null, soon());
    stop?.();
    await store.write("locks-0", new Uint8Array(2), (first as { readonly version: string }).version, soon());
    await admin.flush();
    expect(count).toBe(2);
  });

  test("begins again on the next connection, and tells of the break", async () => {
    const proxy = await tcpProxy({ host: "127.0.0.1", port: server.port });
    const { port } = proxy.address as { readonly port: number };
    const bucket = await createBucket();
    const store = natsStore({ bucket, servers: [`127.0.0.1:${port}`] });
    let count = 0;
    store.watch?.("locks-0", () => count++);
    await until(() => count === 1, { within: 10_000, what: "the watch" });
    proxy.reset();
    await until(() => count === 2, { within: 10_000, what: "the break" });
    // as the driver does
    await store.read("locks-0", soon());
    await until(() => count === 3, { within: 10_000, what: "the watch on the next connection" });
    const kv = await new Kvm(admin).open(bucket);
    await kv.put("locks-0", "text");
    await until(() => count === 4, { within: 10_000, what: "the change" });
    await store.close?.();
    await proxy.close();
  });
});

describe("a connection", () => {
  test("that carries nothing any more is given up with the first call that has no answer", async () => {
    const proxy = await tcpProxy({ host: "127.0.0.1", port: server.port });
    const { port } = proxy.address as { readonly port: number };
    const store = natsStore({ bucket: await createBucket(), servers: [`127.0.0.1:${port}`] });
    await store.open?.(soon());
    proxy.silence();
    await expect(store.read("locks-0", AbortSignal.timeout(300))).rejects.toThrow("timeout");
    expect(await store.read("locks-0", soon())).toBe(null);
    await store.close?.();
    await proxy.close();
  });

  test("that was passed in is used, and stays open", async () => {
    const connection = await connect({ servers: server.address });
    const store = natsStore({ bucket: await createBucket(), connection });
    await store.open?.(soon());
    await store.write("locks-0", new Uint8Array(1), null, soon());
    await store.close?.();
    expect(connection.isClosed()).toBe(false);
    await connection.close();
    await expect(store.open?.(soon())).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
      message: "nats: the connection that was passed in is closed",
    });
  });

  test("that was passed in tells of changes that it may have missed", async () => {
    const proxy = await tcpProxy({ host: "127.0.0.1", port: server.port });
    const { port } = proxy.address as { readonly port: number };
    const connection = await connect({ servers: `127.0.0.1:${port}`, reconnectTimeWait: 50 });
    const store = natsStore({ bucket: await createBucket(), connection });
    let count = 0;
    store.watch?.("locks-0", () => count++);
    await until(() => count === 1, { within: 10_000, what: "the watch" });
    proxy.reset();
    await until(() => count === 2, { within: 10_000, what: "the break" });
    await store.close?.();
    await connection.close();
    await proxy.close();
  });

  test("is opened when a server that was killed has come back, which has kept its documents", async () => {
    const own = await startNats();
    const connection = await connect({ servers: own.address });
    await new Kvm(connection).create("locks");
    await connection.close();
    const store = natsStore({ bucket: "locks", servers: [own.address] });
    await store.write("locks-0", Buffer.from("text"), null, soon());
    await own.crash();
    await expect(store.read("locks-0", soon())).rejects.toThrow();
    await own.start();
    const found = await store.read("locks-0", soon());
    expect(Buffer.from(found?.bytes ?? []).toString()).toBe("text");
    await store.close?.();
    await own.dispose();
  });
});
