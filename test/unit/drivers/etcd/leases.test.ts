// The leases of a driver, with the answers of the servers as the test says.

import { expect, test } from "vitest";
import type { EtcdClient } from "../../../../src/drivers/etcd/client/client.ts";
import type { Lease } from "../../../../src/drivers/etcd/entry.ts";
import { Entry } from "../../../../src/drivers/etcd/entry.ts";
import { Leases } from "../../../../src/drivers/etcd/leases.ts";
import type { Clock } from "../../../../src/util/clock.ts";

type Call = { readonly path: string; readonly body: Readonly<Record<string, unknown>> };

/** What the servers answer, and what they were asked. */
class Servers {
  now = 1_000;
  /** Of the leader, as a read through the log finds it. */
  term = "2";
  /** In the headers of keep-alives: each takes the next one; the last one remains. */
  keepAliveTerms = ["2"];
  ttl: string | undefined = "10";
  failing = "";
  readonly calls: Call[] = [];
  readonly ended: Lease[] = [];
  #lastLease = 0;

  readonly leases: Leases = new Leases({
    client: {
      call: (path: string, body: Call["body"]) => this.#answer(path, body),
      txn: (body: Call["body"]) => this.#answer("/v3/kv/txn", body),
      range: (body: Call["body"]) => this.#answer("/v3/kv/range", body),
    } as unknown as EtcdClient,
    clock: { now: () => this.now } as Clock,
    probeKey: "p",
    onEnded: (lease) => void this.ended.push(lease),
  });

  count(path: string): number {
    return this.calls.filter((call) => call.path.endsWith(path)).length;
  }

  async #answer(path: string, body: Call["body"]): Promise<unknown> {
    this.calls.push({ path, body });
    if (this.failing !== "" && path.endsWith(this.failing)) throw new Error("no answer");
    if (path.endsWith("keepalive")) {
      this.now += 5;
      const term = this.keepAliveTerms.length > 1 ? this.keepAliveTerms.shift() : this.keepAliveTerms[0];
      return { result: { header: { raft_term: term }, ID: "1", TTL: this.ttl } };
    }
    return { header: { revision: "7", raft_term: this.term }, ID: String(++this.#lastLease), TTL: this.ttl };
  }
}

function makeEntry(lease: Lease, dueAt: number): Entry {
  const claim = { id: "id", locks: [{ key: "k", permits: 1, limit: 1 }], ttlMs: 10_000 };
  const entry = new Entry(claim as unknown as Entry["claim"], "k/", `k/${dueAt}`, () => undefined);
  entry.dueAt = dueAt;
  entry.setLease(lease);
  return entry;
}

test("claims with one ttl have one lease, and it is granted once", async () => {
  const servers = new Servers();
  const leases = await Promise.all([10_000, 9_500, 10_000].map((ttlMs) => servers.leases.obtain(ttlMs)));
  expect(new Set(leases).size).toBe(1);
  expect(servers.count("grant")).toBe(1);
  expect(leases[0]?.remainingMs(servers.now)).toBe(10_000);
});

test("each ttl has a lease, in whole seconds", async () => {
  const servers = new Servers();
  for (const ttlMs of [1, 1_000, 1_001, 2_500, 60_000]) await servers.leases.obtain(ttlMs);
  expect(servers.calls.map(({ body }) => body.TTL)).toEqual(["1", "2", "3", "60"]);
});

test("one that has little left is extended first, and counts from when the keep-alive was sent", async () => {
  const servers = new Servers();
  const lease = await servers.leases.obtain(10_000);
  servers.now += 4_000;
  const sentAt = servers.now;
  expect(await servers.leases.obtain(10_000)).toBe(lease);
  expect(lease.provenAt).toBe(sentAt);
  expect(servers.count("keepalive")).toBe(1);
});

test("a keep-alive of a moment ago is not repeated", async () => {
  const servers = new Servers();
  const lease = await servers.leases.obtain(10_000);
  servers.now += 1_000;
  await servers.leases.extend(lease);
  expect(servers.count("keepalive")).toBe(0);
  servers.now += 1_000;
  await Promise.all([servers.leases.extend(lease), servers.leases.extend(lease)]);
  expect(servers.count("keepalive")).toBe(1);
});

test("a keep-alive of an earlier term is not believed: it is sent again", async () => {
  const servers = new Servers();
  const lease = await servers.leases.obtain(10_000);
  servers.now += 4_000;
  const firstSentAt = servers.now;
  servers.keepAliveTerms = ["1", "2"];
  await servers.leases.extend(lease);
  expect(servers.count("keepalive")).toBe(2);
  expect(lease.provenAt).toBe(firstSentAt + 5);
});

test("if the terms do not agree, nothing is believed", async () => {
  const servers = new Servers();
  const lease = await servers.leases.obtain(10_000);
  const { provenAt } = lease;
  servers.now += 4_000;
  servers.keepAliveTerms = ["1"];
  await expect(servers.leases.extend(lease)).rejects.toThrow("changes too often");
  expect(lease.provenAt).toBe(provenAt);
});

test("a retired lease lives on for its entries, and new claims get another", async () => {
  const servers = new Servers();
  const lease = await servers.leases.obtain(10_000);
  servers.leases.retire(lease);
  expect(await servers.leases.obtain(10_000)).not.toBe(lease);
  servers.now += 4_000;
  await servers.leases.extend(lease);
  expect(lease.remainingMs(servers.now)).toBeGreaterThan(9_000);
});

test("entries whose claims were not renewed are deleted before it, and if that fails it is not sent", async () => {
  const servers = new Servers();
  const lease = await servers.leases.obtain(10_000);
  servers.now += 4_000;
  const [overdue, live] = [makeEntry(lease, servers.now), makeEntry(lease, servers.now + 1)];
  servers.failing = "txn";
  await expect(servers.leases.extend(lease)).rejects.toThrow("no answer");
  expect(servers.count("keepalive")).toBe(0);
  servers.failing = "";
  await servers.leases.extend(lease);
  expect(overdue).toMatchObject({ status: "ended", endReason: "expired" });
  expect([...lease.entries]).toEqual([live]);
  const paths = servers.calls.map(({ path }) => path);
  expect(paths.lastIndexOf("/v3/kv/txn")).toBeLessThan(paths.indexOf("/v3/lease/keepalive"));
});

test("one that the servers do not have has ended, and the next claim gets another", async () => {
  const servers = new Servers();
  const lease = await servers.leases.obtain(10_000);
  servers.now += 4_000;
  servers.ttl = undefined;
  await servers.leases.extend(lease);
  expect(servers.ended).toEqual([lease]);
  servers.ttl = "10";
  expect(await servers.leases.obtain(10_000)).not.toBe(lease);
});

test("at the end those without entries are revoked, and no other", async () => {
  const servers = new Servers();
  const used = await servers.leases.obtain(10_000);
  const unused = await servers.leases.obtain(20_000);
  makeEntry(used, 1);
  await servers.leases.close();
  expect(servers.calls.filter(({ path }) => path.endsWith("revoke")).map(({ body }) => body.ID)).toEqual([unused.id]);
});

test("there are at most 16: further ttls have the next longer one", async () => {
  const servers = new Servers();
  for (let seconds = 2; seconds <= 32; seconds += 2) await servers.leases.obtain(seconds * 1_000);
  expect(servers.count("grant")).toBe(16);
  expect((await servers.leases.obtain(2_500)).seconds).toBe(4);
  expect(servers.count("grant")).toBe(16);
  expect((await servers.leases.obtain(60_000)).seconds).toBe(60);
});
