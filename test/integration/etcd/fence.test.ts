// fenceEtcd(): a transaction in etcd that commits only while the lock is held.

import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { etcd } from "../../../src/drivers/etcd/driver.ts";
import type { EtcdFenceOptions } from "../../../src/fencing/index.ts";
import { fenceEtcd } from "../../../src/fencing/index.ts";
import type { Lock, Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { EtcdServer } from "../../support/stores/etcd.ts";
import { startEtcd } from "../../support/stores/etcd.ts";
import { readEtcdState } from "../../support/stores/etcd-inspector.ts";

const DATA = Buffer.from("data").toString("base64");

let server: EtcdServer;

beforeAll(async () => {
  server = await startEtcd();
}, 60_000);
afterAll(() => server[Symbol.asyncDispose]());
beforeEach(() => server.call("/v3/kv/deleterange", { key: DATA }));

function open(options: EtcdFenceOptions = {}): Locks {
  return createLocks(etcd({ servers: [server.address], ...options }), { prefix: "app:" });
}

/** Writes the text, and says whether that was done. */
async function write(lock: Lock, text: string, options: EtcdFenceOptions = {}): Promise<boolean> {
  const put = { request_put: { key: DATA, value: Buffer.from(text).toString("base64") } };
  const { status, body } = await server.call("/v3/kv/txn", fenceEtcd({ success: [put] }, lock, options));
  expect(status).toBe(200);
  return body.succeeded === true;
}

async function readData(): Promise<string | undefined> {
  return (await readEtcdState(server)).entries.find(({ key }) => key === "data")?.value.toString();
}

const CASES: readonly (readonly [string, EtcdFenceOptions])[] = [
  ["the default options", {}],
  ["a prefix and a base of tokens", { prefix: "", tokenBase: 5_000n }],
  ["escaped keys", { compatible: false }],
];

for (const [name, options] of CASES) {
  test(`a transaction commits while the lock is held, and not after it is lost, with ${name}`, async () => {
    await using locks = open(options);
    const lock = await locks.acquire("orders/42");
    expect(await write(lock, "first", options)).toBe(true);
    const [entry] = (await readEtcdState(server)).entries.filter(({ key }) => key.includes("orders"));
    await server.call("/v3/kv/deleterange", { key: Buffer.from(entry?.key ?? "").toString("base64") });
    const isCommitted = await write(lock, "late", options).catch((error: { code?: string }) => error.code);
    // the loss may be known here already
    expect([false, "LOCK_LOST"]).toContain(isCommitted);
    expect(await readData()).toBe("first");
  });
}

test("a later holder on the same key does not make it pass", async () => {
  await using locksA = open();
  await using locksB = open();
  const lock = await locksA.acquire("key");
  const txn = fenceEtcd({ success: [{ request_put: { key: DATA, value: "" } }] }, lock);
  await lock.release();
  const next = await locksB.acquire("key");
  expect((await server.call("/v3/kv/txn", txn)).body.succeeded).toBeUndefined();
  expect(await write(next, "next")).toBe(true);
});
