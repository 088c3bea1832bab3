// What takes seconds or a crash takes no time here: the server's clock and disk are the test's, the sockets are real.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { makeReference } from "../../src/reference.ts";
import { OPEN } from "../../src/server/access.ts";
import type { Http } from "../../src/server/http/http.ts";
import { createHttp } from "../../src/server/http/http.ts";
import type { Hub } from "../../src/server/hub.ts";
import { Metrics } from "../../src/server/metrics.ts";
import { Record } from "../../src/server/record.ts";
import { claimOf, held } from "../server/support.ts";
import { World } from "../server/world.ts";
import { leakCheck } from "../support/leak-check.ts";
import { until } from "../support/wait-for.ts";
import type { Answered } from "./support.ts";
import { ask, cleanUp, later, post } from "./support.ts";

leakCheck();
cleanUp();

interface Site {
  readonly url: string;
  readonly http: Http;
  close(): Promise<void>;
}

/** The HTTP port of a world's server as it runs now. */
async function site(world: World): Promise<Site> {
  const hub = world.hub as Hub;
  const record = new Record({ clock: world.clock });
  const none = (): number => 0;
  const connections = (): { inside: number; accepted: number; turnedAway: number } => hub.door;
  const numbers = { connections, authFailures: none, sessions: none, claims: none, reclaimMs: none };
  const sources = { record, version: "0", ...numbers };
  const http = createHttp({
    hub,
    access: OPEN,
    record,
    metrics: new Metrics(sources),
    ready: () => ({ ok: true }),
    version: "0",
    host: "127.0.0.1",
  });
  const server = createServer(http.serverOptions);
  http.attach(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  let closed: Promise<void> | null = null;
  const close = (): Promise<void> =>
    (closed ??= new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    }).then(() => http.close()));
  later(close);
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, http, close };
}

async function opened(options: ConstructorParameters<typeof World>[0] = {}): Promise<[World, Site]> {
  const world = new World({ remote: true, ...options });
  await world.start();
  return [world, await site(world)];
}

const claims = (world: World): number => world.kept?.keeper.table.entries.size ?? 0;
const SOON = { within: 2_000, what: "the server to have heard it" };

test("a request waits 25 s at most, however long it wants to, and keeps its place", async () => {
  const [world, { url }] = await opened();
  await post(url, "/v1/claims", { key: "k", ttl: "5m" });
  const waiting = post(url, "/v1/claims", { key: "k", ttl: "5m", wait: "1h" });
  await until(() => claims(world) === 2, SOON);
  let answered = false;
  void waiting.then(() => {
    answered = true;
  });
  await world.clock.pass(24_900);
  expect(answered).toBe(false);
  await world.clock.pass(200);
  expect(await waiting).toMatchObject({ status: 202, json: { graceMs: 10_000 } });
  expect(claims(world)).toBe(2);
});

test("a place outlives its own lease while it is waited for, and while it is kept; then it is given up", async () => {
  const [world, { url, http }] = await opened();
  await post(url, "/v1/claims", { key: "k", ttl: "5m" });
  const pending = post(url, "/v1/claims", { key: "k", ttl: "200ms", wait: "20s" });
  await until(() => claims(world) === 2, SOON);
  await world.clock.pass(20_100);
  const { json } = await pending;
  expect(json.state).toBe("waiting");
  await world.clock.pass(9_000);
  expect([claims(world), http.stats().waiting]).toEqual([2, 1]);
  await world.clock.pass(1_500);
  expect([claims(world), http.stats().waiting]).toEqual([1, 0]);
  const lost = await post(url, "/v1/claims/wait", { reference: json.reference });
  expect(lost).toMatchObject({ status: 409, json: { code: "LOCK_LOST", reason: "expired" } });
});

test("a lock ends with its lease unless it is renewed", async () => {
  const [world, { url }] = await opened();
  const { reference } = (await post(url, "/v1/claims", { key: "k", ttl: "10s" })).json;
  for (let turn = 0; turn < 5; turn++) {
    await world.clock.pass(9_000);
    expect((await post(url, "/v1/claims/renew", { reference })).status).toBe(200);
  }
  await world.clock.pass(10_100);
  const late = await post(url, "/v1/claims/renew", { reference });
  expect(late).toMatchObject({ status: 409, json: { reason: "expired" } });
});

test("a crash of the server loses no lock that was granted, and grants nothing twice", async () => {
  const [world, before] = await opened();
  const held = await post(before.url, "/v1/claims", { key: "k" });
  const given = await post(before.url, "/v1/claims", { key: "given" });
  await post(before.url, "/v1/claims/release", { reference: given.json.reference });
  // for somebody else the next server waits; for locks held over HTTP it need not
  const other = await world.client(false);
  const claimed = other.driver.claim(claimOf("other"));
  await world.clock.pass(1);
  await claimed;
  other.unreachable = true;
  const place = post(before.url, "/v1/claims", { key: "k", wait: "1s" });
  await until(() => claims(world) === 3, SOON);
  await world.clock.pass(1_000);
  const waiting = await place;
  world.crash();
  await before.close();
  await world.clock.pass(5_000);
  await world.start();
  const { url } = await site(world);
  expect(world.kept?.keeper.reclaiming).toBe(true);
  // what was held came back from disk, and answers already
  expect(await post(url, "/v1/claims/renew", { reference: held.json.reference })).toMatchObject({
    status: 200,
    json: { token: held.json.token },
  });
  const busy = await post(url, "/v1/claims", { key: "given", wait: 0 });
  expect(busy).toMatchObject({ status: 503, json: { code: "PAUSED", reason: "recovery" } });
  // what is known to be held is busy all the same
  expect(await post(url, "/v1/claims", { key: "k", wait: 0 })).toMatchObject({ status: 409, json: { code: "BUSY" } });
  // of a place nothing is known: it is too early to say that it is gone
  const early = await post(url, "/v1/claims/wait", { reference: waiting.json.reference });
  expect(early).toMatchObject({ status: 503, json: { code: "RECLAIMING" } });
  const lined = post(url, "/v1/claims", { key: "given" });
  await until(() => claims(world) === 2, SOON);
  await world.clock.pass(15_000);
  expect((await post(url, "/v1/claims/renew", { reference: held.json.reference })).status).toBe(200);
  await world.clock.pass(10_100);
  const next = await lined;
  expect(next.status).toBe(202);
  const granted = post(url, "/v1/claims/wait", { reference: next.json.reference });
  await ask(url, "/health");
  await world.clock.pass(6_000);
  expect(world.kept?.keeper.reclaiming).toBe(false);
  expect(await granted).toMatchObject({ status: 201, json: { keys: ["given"] } });
  const last = await post(url, "/v1/claims", { key: "free", wait: 0 });
  expect(last.status).toBe(201);
  expect(BigInt(last.json.token)).toBeGreaterThan(BigInt(given.json.token));
  expect((await post(url, "/v1/claims", { key: "k", wait: 0 })).json).toMatchObject({ code: "BUSY", reason: "held" });
});

test("after a crash nobody waits for those who came over HTTP: what they hold is on the disk", async () => {
  const [world, before] = await opened();
  const held = await post(before.url, "/v1/claims", { key: "k" });
  world.crash();
  await before.close();
  await world.start();
  const { url } = await site(world);
  expect((await post(url, "/v1/claims", { key: "k", wait: 0 })).json).toMatchObject({ code: "BUSY", reason: "held" });
  expect((await post(url, "/v1/claims", { key: "x", wait: 0 })).status).toBe(201);
  expect((await post(url, "/v1/claims/release", { reference: held.json.reference })).status).toBe(200);
});

test("a server that stops answers who waits, and the next one knows the place", async () => {
  const [world, before] = await opened();
  const held = await post(before.url, "/v1/claims", { key: "k" });
  const first = post(before.url, "/v1/claims", { key: "k" });
  await until(() => claims(world) === 2, SOON);
  const second = post(before.url, "/v1/claims", { key: "k" });
  await until(() => claims(world) === 3, SOON);
  before.http.drain();
  const told = await first;
  expect(told).toMatchObject({ status: 202, headers: { connection: "close" } });
  const toldToo = await second;
  await world.stop();
  await before.close();
  await world.start();
  const { url } = await site(world);
  const later = post(url, "/v1/claims/wait", { reference: toldToo.json.reference });
  const again = post(url, "/v1/claims/wait", { reference: told.json.reference });
  await until(async () => (await ask(url, "/v1/locks")).json.locks.length === 3, SOON);
  await until(() => (world.kept?.keeper.table.mint.lines.get("k")?.seats.last?.arrival ?? 0) > 0, SOON);
  await post(url, "/v1/claims/release", { reference: held.json.reference });
  const granted = await again;
  expect(granted).toMatchObject({ status: 201, json: { tag: told.json.tag } });
  await post(url, "/v1/claims/release", { reference: granted.json.reference });
  expect((await later).json.tag).toBe(toldToo.json.tag);
});

test("a full disk: nothing is granted that would not outlive a crash, and what is held goes on", async () => {
  const [world, { url }] = await opened();
  const held = await post(url, "/v1/claims", { key: "k" });
  const disk = world.disk as NonNullable<typeof world.disk>;
  disk.full = true;
  const refused = await post(url, "/v1/claims", { key: "x" });
  expect(refused).toMatchObject({ status: 503, json: { code: "DISK" } });
  expect(claims(world)).toBe(1);
  expect((await post(url, "/v1/claims/renew", { reference: held.json.reference })).status).toBe(200);
  expect((await ask(url, "/v1/locks")).json.locks).toHaveLength(1);
  const busy = await post(url, "/v1/claims", { key: "k", wait: 0 });
  expect(busy.json.code).toBe("BUSY");
  disk.full = false;
  await world.clock.pass(2_000);
  expect((await post(url, "/v1/claims", { key: "x", wait: 0 })).status).toBe(201);
});

test("nobody is told of a lock before it stands on the disk", async () => {
  const [world, { url }] = await opened();
  const disk = world.disk as NonNullable<typeof world.disk>;
  let open = (): void => undefined;
  disk.gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  let answered = false;
  const pending = post(url, "/v1/claims", { key: "k" }).then((answer) => {
    answered = true;
    return answer;
  });
  await until(() => disk.writes.filter((it) => it === "append").length > 0, SOON);
  await ask(url, "/health");
  expect(answered).toBe(false);
  open();
  expect((await pending).status).toBe(201);
});

test("what is said to be left of a lease is what is left when the disk is done; what has ended by then is not said to be held", async () => {
  for (const verb of ["claim", "renew"]) {
    const [world, { url }] = await opened();
    const disk = world.disk as NonNullable<typeof world.disk>;
    const slowly = async (ms: number, key: string): Promise<Answered> => {
      const lock = claimOf(key, { ttlMs: 10_000 });
      const player = await world.client(false);
      let body: object = { key, ttl: "10s" };
      if (verb === "renew") {
        // held by a session that gave its reference away: the first renewal over HTTP writes it down
        const claimed = player.driver.claim(lock);
        await world.clock.pass(1);
        const { token } = held(await claimed);
        body = { reference: makeReference([{ claim: lock, run: token, token, prefix: "" }]) };
      }
      let open = (): void => undefined;
      disk.gate = new Promise<void>((resolve) => {
        open = resolve;
      });
      const before = disk.writes.length;
      const answer = post(url, verb === "claim" ? "/v1/claims" : "/v1/claims/renew", body);
      await until(() => disk.writes.length > before, SOON);
      await world.clock.pass(ms);
      open();
      return answer;
    };
    const slow = await slowly(4_000, "slow");
    expect(slow).toMatchObject({ status: verb === "claim" ? 201 : 200, json: { ttlMs: 6_000 } });
    const late = await slowly(10_000, "late");
    expect(late).toMatchObject({ status: 409, json: { code: "LOCK_LOST", reason: "expired" } });
    expect((await post(url, "/v1/claims", { key: "late", wait: 0 })).status).toBe(201);
  }
});
