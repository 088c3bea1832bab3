// Every request gets an answer of the OpenAPI document, or the end of its connection; never a crash or harm to others.

import type { Socket } from "node:net";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { until } from "../../src/testing/until.ts";
import { cleanUpAfterEach, onCleanup, post, request, startHttpServer } from "../support/http-fixture.ts";
import { checkLeaksAfterEach } from "../support/leak-check.ts";
import { seededRandom } from "../support/seeded-random.ts";
import type { FuzzRequest, RawResponse } from "./request-generator.ts";
import { checkResponse, generateRequest, REQUEST_COUNT, SEED } from "./request-generator.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

/** Sockets get a tenth of the bulk test's requests, since waits take real time. */
const TURN_COUNT = Math.min(REQUEST_COUNT / 10, 100_000);
/** The longest lease: some of the hostile numbers are valid as leases, but too long to wait for their end. */
const LEASE_MS = 3_000;
/** Connections with a request at a time. */
const CONCURRENT_CONNECTIONS = 32;

/** One connection that sends request after request; a new one after each that ended. */
class FuzzConnection {
  readonly #port: number;
  #socket: Socket | null = null;
  #text = "";
  #received: () => void = () => undefined;

  constructor(port: number) {
    this.#port = port;
  }

  /** The answer; null: the connection ended instead. cut: the client ends it after this number of milliseconds, if not -1. */
  async send({ method, path, headers, body }: FuzzRequest, cut: number): Promise<RawResponse | null> {
    const socket = this.#open();
    const head = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.write(`${method} ${path} HTTP/1.1\r\n${head.join("")}\r\n`, "latin1");
    if (body !== null) socket.write(body);
    const timer = cut < 0 ? undefined : setTimeout(() => socket.destroy(), cut);
    for (;;) {
      const response = this.#readResponse(method);
      if (response !== null || socket.destroyed) {
        clearTimeout(timer);
        if (response?.headers.connection === "close" || method === "HEAD") this.close();
        return response;
      }
      await new Promise<void>((resolve) => {
        this.#received = resolve;
      });
    }
  }

  close(): void {
    this.#socket?.destroy();
    this.#socket = null;
  }

  #open(): Socket {
    if (this.#socket !== null && !this.#socket.destroyed) return this.#socket;
    this.#text = "";
    const socket = connect({ host: "127.0.0.1", port: this.#port, noDelay: true });
    this.#socket = socket;
    socket.setEncoding("utf8").on("data", (chunk: string) => {
      this.#text += chunk;
      this.#received();
    });
    socket.on("error", () => undefined).on("close", () => this.#received());
    return socket;
  }

  #readResponse(method: string): RawResponse | null {
    const end = this.#text.indexOf("\r\n\r\n");
    if (end === -1) return null;
    const [first = "", ...lines] = this.#text.slice(0, end).split("\r\n");
    const headers = Object.fromEntries(lines.map((line) => line.split(": ", 2))) as Record<string, string>;
    const length = method === "HEAD" ? 0 : Number(headers["content-length"] ?? 0);
    const rest = Buffer.from(this.#text.slice(end + 4));
    if (rest.length < length) return null;
    this.#text = rest.toString("utf8", length);
    return { status: Number(first.split(" ")[1]), headers, text: rest.toString("utf8", 0, length) };
  }
}

/**
 * A lock that is acquired and released under this load. Its lease may only expire if the machine stopped this process,
 * which is all these clients and the server, for longer than that; it happens when other programs run beside it.
 */
async function expectHealthy(url: string, turn: number): Promise<void> {
  const startedAt = performance.now();
  const held = await post(url, "/v1/claims", { key: `healthy ${turn}`, wait: 0, ttl: LEASE_MS });
  if (performance.now() - startedAt < LEASE_MS) expect([held.status, held.text]).toEqual([201, held.text]);
  if (held.status !== 201) return;
  const { status, text } = await post(url, "/v1/claims/release", { reference: held.json.reference });
  const durationMs = performance.now() - startedAt;
  expect(status === 200 || durationMs >= LEASE_MS, `${status} ${text} after ${durationMs} ms`).toBe(true);
}

test(`a live server survives ${TURN_COUNT} fuzzed requests (seed ${SEED})`, async () => {
  const random = seededRandom(SEED);
  const server = await startHttpServer({ limits: { ttlMs: LEASE_MS } });
  const url = new URL(server.url);
  let sentCount = 0;
  const statuses = new Map<number, number>();
  const worker = async (): Promise<void> => {
    const fuzzConnection = new FuzzConnection(Number(url.port));
    onCleanup(() => fuzzConnection.close());
    while (sentCount < TURN_COUNT) {
      const turn = ++sentCount;
      const fuzzRequest = generateRequest(random, url.host, true);
      const response = await fuzzConnection.send(fuzzRequest, random.chance(0.01) ? random.int(5) : -1);
      if (response === null) continue;
      statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1);
      checkResponse(fuzzRequest, response);
      if (turn % 500 === 0) await expectHealthy(server.url, turn);
    }
  };
  await Promise.all(Array.from({ length: CONCURRENT_CONNECTIONS }, worker));
  for (const status of [200, 201, 400, 403, 404, 405, 409, 415]) expect([...statuses.keys()]).toContain(status);
  // every lease and every grace period is over soon
  await until(() => server.stats().claims === 0, { within: 20_000, what: "the end of all claims" }).catch(
    async (error) => {
      throw new Error((await request(server.url, "/v1/locks")).text, { cause: error });
    },
  );
  expect(server.logged.filter((line) => !line.startsWith("a lock was"))).toEqual([]);
}, 7_200_000);

test(`connections with arbitrary bytes, cut at any byte, harm no other client (seed ${SEED})`, async () => {
  const random = seededRandom(SEED + 1);
  const server = await startHttpServer({ limits: { ttlMs: LEASE_MS } });
  const { host, port } = new URL(server.url);
  const open = new Set<Socket>();
  const turns = Math.min(TURN_COUNT / 2, 20_000);
  for (let turn = 0; turn < turns; turn++) {
    const socket = connect({ host: "127.0.0.1", port: Number(port) });
    open.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => open.delete(socket));
    socket.resume();
    const pieces = Array.from({ length: 1 + random.int(3) }, () => {
      const { method, path, headers, body } = generateRequest(random, host, true);
      const head = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
      return Buffer.concat([
        Buffer.from(`${method} ${path} HTTP/1.1\r\n${head.join("")}\r\n`),
        body ?? Buffer.alloc(0),
      ]);
    });
    const bytes = Buffer.concat(pieces);
    for (let flipCount = random.int(4); flipCount > 0; flipCount--) bytes[random.int(bytes.length)] = random.int(256);
    socket.write(random.chance(0.5) ? bytes : bytes.subarray(0, random.int(bytes.length)));
    if (random.chance(0.5)) socket.destroy();
    else socket.end();
    if (open.size > 200) await until(() => open.size < 100, { within: 5_000, what: "the end of connections" });
    if (turn % 100 === 0) await expectHealthy(server.url, turn);
  }
  await until(() => open.size === 0, { within: 35_000, what: "the end of all connections" });
  await until(() => server.stats().claims === 0, { within: 35_000, what: "the end of all claims" });
  expect(server.logged.filter((line) => !/^(a lock was|a connection did not speak HTTP)/.test(line))).toEqual([]);
}, 7_200_000);
