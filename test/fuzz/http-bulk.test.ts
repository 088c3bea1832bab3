// Requests by the million, through Node's own HTTP parser, but without sockets or real time; in the end nothing is left.

import type { Duplex } from "node:stream";
import { expect, test } from "vitest";
import type { HttpServer } from "../../src/gateway/http/http-server.ts";
import { createHttpServer } from "../../src/gateway/http/http-server.ts";
import { flushEventLoop } from "../support/fake-clock.ts";
import { heapUsed } from "../support/heap-usage.ts";
import { disableStackTraces } from "../support/no-stack-traces.ts";
import { seededRandom } from "../support/seeded-random.ts";
import { cleanUpAfterEach } from "../support/server-fixture.ts";
import { serverDashboard, serverGateway } from "../support/server-gateway.ts";
import { ServerHarness } from "../support/server-harness.ts";
import { InMemorySocket } from "./in-memory-socket.ts";
import type { FuzzRequest } from "./request-generator.ts";
import { checkResponse, generateRequest, REQUEST_COUNT, SEED } from "./request-generator.ts";

cleanUpAfterEach();
disableStackTraces();

const HOST = "127.0.0.1:7421";
/** Connections with a request at a time. */
const CONCURRENT_CONNECTIONS = 32;
/** If this number of turns of the event loop brings no answer, time is advanced. */
const MAX_TURNS = 12;
const MIB = 1_048_576;

test(`HTTP survives ${REQUEST_COUNT} fuzzed requests (seed ${SEED})`, async () => {
  const random = seededRandom(SEED);
  // one of the hostile numbers is a lease of 24 days: a claim with a lost reference would hold its key to the end
  const harness = new ServerHarness({ limits: { ttlMs: 60_000 } });
  await harness.start();
  const { http, open } = createHttpFor(harness);
  const lines = Array.from({ length: CONCURRENT_CONNECTIONS }, () => new InMemorySocket(open));
  const pendingRequests = new Map<InMemorySocket, FuzzRequest>();
  const statuses = new Map<number, number>();
  let heapBefore = 0;
  let sentCount = 0;
  for (let idle = 0; sentCount < REQUEST_COUNT || pendingRequests.size > 0; idle++) {
    for (const line of lines) {
      const question = pendingRequests.get(line);
      const response = question === undefined ? null : line.takeResponse(question.method);
      if (question !== undefined && response === null && !line.isClosed) continue;
      idle = 0;
      pendingRequests.delete(line);
      if (question !== undefined && response !== null) {
        statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1);
        checkResponse(question, response);
      }
      if (sentCount >= REQUEST_COUNT) continue;
      const next = generateRequest(random, HOST);
      line.send(next);
      pendingRequests.set(line, next);
      if (++sentCount % 1_000 === 0) await expectHealthy(open, sentCount, () => harness.clock.advance(10));
    }
    // a client disconnects in the midst of it
    if (random.chance(0.2)) random.pick(lines).disconnect();
    await nextTurn();
    if (idle > MAX_TURNS) await harness.clock.advance(random.chance(0.1) ? 30_000 : random.pick([1, 10, 200]));
    if (heapBefore === 0 && sentCount > REQUEST_COUNT / 10) heapBefore = heapUsed();
  }
  for (const status of [200, 201, 400, 403, 404, 405, 409, 415]) expect([...statuses.keys()]).toContain(status);
  for (const line of lines) line.disconnect();
  // every lease and every grace period is over then
  await harness.clock.advance(100_000);
  const growth = heapUsed() - heapBefore;
  expect(growth, `${Math.round(growth / MIB)} MiB more than after a tenth of it`).toBeLessThan(32 * MIB);
  expect(http.stats()).toEqual({ connections: 0, waiting: 0, streams: 0 });
  expect(harness.logLines.filter((line) => !/^a lock was|^a connection did not speak HTTP/.test(line))).toEqual([]);
  http.close();
  await flushEventLoop(2);
  expect([harness.inspect().records.size, harness.inspect().sessions.size]).toEqual([0, 0]);
}, 10_800_000);

/** The HTTP side of the world's server; the second makes a stream a connection of it. */
function createHttpFor({ parts, access }: ServerHarness): {
  readonly http: HttpServer;
  readonly open: (stream: Duplex) => void;
} {
  if (parts === null) throw new Error("the world has started");
  const checkReadiness = (): { ok: true } => ({ ok: true });
  const service = serverGateway(parts.service);
  const http = createHttpServer({
    ...parts,
    service,
    dashboard: serverDashboard(service, parts),
    access,
    checkReadiness,
    version: "0",
    host: "127.0.0.1",
    names: [],
  });
  return { http, open: (stream) => void http.server.emit("connection", stream) };
}

/** A lock is acquired, briefly awaited by another client, and released under this load. */
async function expectHealthy(
  open: (stream: Duplex) => void,
  number: number,
  waitTurn: () => Promise<void>,
): Promise<void> {
  const [line, other] = [new InMemorySocket(open), new InMemorySocket(open)];
  const held = await postJson(line, "/v1/claims", { key: `healthy ${number}`, wait: 0, ttl: "10s" });
  expect([held.status, held.text]).toEqual([201, held.text]);
  const { reference } = JSON.parse(held.text) as { reference: string };
  const waiting = postJson(other, "/v1/claims", { key: `healthy ${number}`, wait: "5ms" }, waitTurn);
  expect((await waiting).status).toBe(202);
  const response = await postJson(line, "/v1/claims/release", { reference });
  expect([response.status, response.text]).toEqual([200, response.text]);
  line.disconnect();
  other.disconnect();
}

/** pass: advances time where nothing else brings an answer. */
async function postJson(
  line: InMemorySocket,
  path: string,
  value: object,
  waitTurn: () => Promise<void> = nextTurn,
): Promise<{ status: number; text: string }> {
  const body = Buffer.from(JSON.stringify(value));
  const headers = { host: HOST, "content-type": "application/json", "content-length": String(body.length) };
  line.send({ method: "POST", path, headers, body });
  for (let turns = 0; turns < 10_000; turns++) {
    const response = line.takeResponse("POST");
    if (response !== null) return response;
    await nextTurn();
    await waitTurn();
  }
  throw new Error(`${path} was not answered`);
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
