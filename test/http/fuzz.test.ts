// Whatever is asked: an answer that the OpenAPI document has, or the end of that one connection; never a crash, never a harm.

import type { Socket } from "node:net";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { leakCheck } from "../support/leak-check.ts";
import { seededRandom } from "../support/seeded-random.ts";
import { until } from "../support/wait-for.ts";
import type { Got, Sent } from "./fuzzed.ts";
import { check, nextRequest, REQUESTS, SEED } from "./fuzzed.ts";
import { ask, cleanUp, later, post, running } from "./support.ts";

leakCheck();
cleanUp();

/** Of what the bulk is fed with, sockets get a tenth: what waits there waits in real time. */
const TURNS = Math.min(REQUESTS / 10, 100_000);
/** The longest lease: some of the nasty numbers are fine as leases, but too long to wait for their end. */
const LEASE_MS = 3_000;
/** Connections that ask at a time. */
const AT_ONCE = 32;

/** One connection that asks and is answered, again and again; a new one after each that ended. */
class Line {
  readonly #port: number;
  #socket: Socket | null = null;
  #text = "";
  #told: () => void = () => undefined;

  constructor(port: number) {
    this.#port = port;
  }

  /** The answer; null: the connection ended instead. cut: it is ended by us after so many milliseconds, if not -1. */
  async ask({ method, path, headers, body }: Sent, cut: number): Promise<Got | null> {
    const socket = this.#open();
    const head = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.write(`${method} ${path} HTTP/1.1\r\n${head.join("")}\r\n`, "latin1");
    if (body !== null) socket.write(body);
    const timer = cut < 0 ? undefined : setTimeout(() => socket.destroy(), cut);
    for (;;) {
      const got = this.#take(method);
      if (got !== null || socket.destroyed) {
        clearTimeout(timer);
        if (got?.headers.connection === "close" || method === "HEAD") this.close();
        return got;
      }
      await new Promise<void>((resolve) => {
        this.#told = resolve;
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
      this.#told();
    });
    socket.on("error", () => undefined).on("close", () => this.#told());
    return socket;
  }

  #take(method: string): Got | null {
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
 * A lock that is taken and given back amid all that. Its lease may only be over if the machine let this process, which is
 * all these clients and the server, wait for longer than that; who runs this beside something else sees it happen.
 */
async function healthy(url: string, turn: number): Promise<void> {
  const began = performance.now();
  const held = await post(url, "/v1/claims", { key: `healthy ${turn}`, wait: 0, ttl: LEASE_MS });
  if (performance.now() - began < LEASE_MS) expect([held.status, held.text]).toEqual([201, held.text]);
  if (held.status !== 201) return;
  const { status, text } = await post(url, "/v1/claims/release", { reference: held.json.reference });
  const took = performance.now() - began;
  expect(status === 200 || took >= LEASE_MS, `${status} ${text} after ${took} ms`).toBe(true);
}

test(`a live server stands ${TURNS} fuzzed requests (seed ${SEED})`, async () => {
  const random = seededRandom(SEED);
  const it = await running({ limits: { ttlMs: LEASE_MS } });
  const url = new URL(it.url);
  let sent = 0;
  const statuses = new Map<number, number>();
  const worker = async (): Promise<void> => {
    const line = new Line(Number(url.port));
    later(() => line.close());
    while (sent < TURNS) {
      const turn = ++sent;
      const asked = nextRequest(random, url.host, true);
      const got = await line.ask(asked, random.chance(0.01) ? random.int(5) : -1);
      if (got === null) continue;
      statuses.set(got.status, (statuses.get(got.status) ?? 0) + 1);
      check(asked, got);
      if (turn % 500 === 0) await healthy(it.url, turn);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  for (const status of [200, 201, 400, 403, 404, 405, 409, 415]) expect([...statuses.keys()]).toContain(status);
  // every lease and every grace there was is over soon
  await until(() => it.stats().claims === 0, { within: 20_000, what: "the end of all claims" }).catch(async (error) => {
    throw new Error((await ask(it.url, "/v1/locks")).text, { cause: error });
  });
  expect(it.logged.filter((line) => !line.startsWith("a lock was"))).toEqual([]);
}, 7_200_000);

test(`connections that speak anything, cut at any byte, harm nobody (seed ${SEED})`, async () => {
  const random = seededRandom(SEED + 1);
  const it = await running({ limits: { ttlMs: LEASE_MS } });
  const { host, port } = new URL(it.url);
  const open = new Set<Socket>();
  const turns = Math.min(TURNS / 2, 20_000);
  for (let turn = 0; turn < turns; turn++) {
    const socket = connect({ host: "127.0.0.1", port: Number(port) });
    open.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => open.delete(socket));
    socket.resume();
    const pieces = Array.from({ length: 1 + random.int(3) }, () => {
      const { method, path, headers, body } = nextRequest(random, host, true);
      const head = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
      return Buffer.concat([
        Buffer.from(`${method} ${path} HTTP/1.1\r\n${head.join("")}\r\n`),
        body ?? Buffer.alloc(0),
      ]);
    });
    const bytes = Buffer.concat(pieces);
    for (let flips = random.int(4); flips > 0; flips--) bytes[random.int(bytes.length)] = random.int(256);
    socket.write(random.chance(0.5) ? bytes : bytes.subarray(0, random.int(bytes.length)));
    if (random.chance(0.5)) socket.destroy();
    else socket.end();
    if (open.size > 200) await until(() => open.size < 100, { within: 5_000, what: "the end of connections" });
    if (turn % 100 === 0) await healthy(it.url, turn);
  }
  await until(() => open.size === 0, { within: 35_000, what: "the end of all connections" });
  await until(() => it.stats().claims === 0, { within: 35_000, what: "the end of all claims" });
  expect(it.logged.filter((line) => !/^(a lock was|a connection spoke no HTTP)/.test(line))).toEqual([]);
}, 7_200_000);
