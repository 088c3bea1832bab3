// Requests by the million, through Node's own reading of HTTP, but without sockets or real time; and nothing of all that is left.

import { createServer } from "node:http";
import type { Duplex } from "node:stream";
import { expect, test } from "vitest";
import type { Http } from "../../src/server/http/http.ts";
import { createHttp } from "../../src/server/http/http.ts";
import { Metrics } from "../../src/server/metrics.ts";
import { cleanUp } from "../server/support.ts";
import { World } from "../server/world.ts";
import { heapNow } from "../support/heap.ts";
import { seededRandom } from "../support/seeded-random.ts";
import { stackless } from "../support/stackless.ts";
import type { Sent } from "./fuzzed.ts";
import { check, nextRequest, REQUESTS, SEED } from "./fuzzed.ts";
import { Pipe } from "./pipe.ts";

cleanUp();
stackless();

const HOST = "127.0.0.1:7421";
/** Connections that ask at a time. */
const AT_ONCE = 32;
/** If in so many turns of the event loop nobody was answered, all wait for something to happen. */
const PATIENCE = 12;
const MIB = 1_048_576;

test(`HTTP stands ${REQUESTS} fuzzed requests (seed ${SEED})`, async () => {
  const random = seededRandom(SEED);
  // one of the nasty numbers is a lease of 24 days: whoever lost its reference would have the key to the end
  const world = new World({ limits: { ttlMs: 60_000 } });
  await world.start();
  const { http, open } = webOf(world);
  const lines = Array.from({ length: AT_ONCE }, () => new Pipe(open));
  const asked = new Map<Pipe, Sent>();
  const statuses = new Map<number, number>();
  let early = 0;
  let sent = 0;
  for (let idle = 0; sent < REQUESTS || asked.size > 0; idle++) {
    for (const line of lines) {
      const question = asked.get(line);
      const got = question === undefined ? null : line.answer(question.method);
      if (question !== undefined && got === null && !line.ended) continue;
      idle = 0;
      asked.delete(line);
      if (question !== undefined && got !== null) {
        statuses.set(got.status, (statuses.get(got.status) ?? 0) + 1);
        check(question, got);
      }
      if (sent >= REQUESTS) continue;
      const next = nextRequest(random, HOST);
      line.ask(next);
      asked.set(line, next);
      if (++sent % 1_000 === 0) await healthy(open, sent, () => world.clock.pass(10));
    }
    // somebody goes in the midst of it
    if (random.chance(0.2)) random.pick(lines).cut();
    await turn();
    if (idle > PATIENCE) await world.clock.pass(random.chance(0.1) ? 30_000 : random.pick([1, 10, 200]));
    if (early === 0 && sent > REQUESTS / 10) early = heapNow();
  }
  for (const status of [200, 201, 400, 403, 404, 405, 409, 415]) expect([...statuses.keys()]).toContain(status);
  for (const line of lines) line.cut();
  // every lease and every grace there was is over then
  await world.clock.pass(100_000);
  const grown = heapNow() - early;
  expect(grown, `${Math.round(grown / MIB)} MiB more than after a tenth of it`).toBeLessThan(32 * MIB);
  expect(http.stats()).toEqual({ connections: 0, waiting: 0, streams: 0 });
  expect([world.kept?.keeper.table.entries.size, world.kept?.sessions.all.size]).toEqual([0, 0]);
  expect(world.logged.filter((line) => !/^a lock was|^a connection spoke no HTTP/.test(line))).toEqual([]);
  http.close();
}, 10_800_000);

/** The HTTP side of the world's server; the second makes a stream a connection of it. */
function webOf({ hub, record, kept, access }: World): { readonly http: Http; readonly open: (stream: Duplex) => void } {
  if (hub === null || record === null || kept === null) throw new Error("the world has started");
  const metrics = new Metrics({
    record,
    version: "0",
    connections: () => hub.door,
    authFailures: () => access.failures,
    sessions: () => kept.sessions.all.size,
    claims: () => kept.keeper.table.entries.size,
    reclaimMs: () => hub.backend.reclaimMs(),
  });
  const ready = (): { ok: true } => ({ ok: true });
  const http = createHttp({ hub, access, record, metrics, ready, version: "0", host: "127.0.0.1", names: [] });
  const server = createServer(http.serverOptions);
  http.attach(server);
  return { http, open: (stream) => void server.emit("connection", stream) };
}

/** A lock is taken, waited for by another for a little, and given back amid all that. */
async function healthy(open: (stream: Duplex) => void, number: number, pass: () => Promise<void>): Promise<void> {
  const [line, other] = [new Pipe(open), new Pipe(open)];
  const held = await post(line, "/v1/claims", { key: `healthy ${number}`, wait: 0, ttl: "10s" });
  expect([held.status, held.text]).toEqual([201, held.text]);
  const { reference } = JSON.parse(held.text) as { reference: string };
  const waiting = post(other, "/v1/claims", { key: `healthy ${number}`, wait: "5ms" }, pass);
  expect((await waiting).status).toBe(202);
  const released = await post(line, "/v1/claims/release", { reference });
  expect([released.status, released.text]).toEqual([200, released.text]);
  line.cut();
  other.cut();
}

/** pass: lets time pass where nothing else brings an answer. */
async function post(
  line: Pipe,
  path: string,
  value: object,
  pass: () => Promise<void> = turn,
): Promise<{ status: number; text: string }> {
  const body = Buffer.from(JSON.stringify(value));
  const headers = { host: HOST, "content-type": "application/json", "content-length": String(body.length) };
  line.ask({ method: "POST", path, headers, body });
  for (let turns = 0; turns < 10_000; turns++) {
    const got = line.answer("POST");
    if (got !== null) return got;
    await turn();
    await pass();
  }
  throw new Error(`${path} was not answered`);
}

function turn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
