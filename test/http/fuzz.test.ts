// Whatever is asked: an answer that the OpenAPI document has, or the end of that one connection; never a crash, never a harm.

import type { Socket } from "node:net";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { document } from "../../src/server/http/openapi.ts";
import { leakCheck } from "../support/leak-check.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import { seededRandom } from "../support/seeded-random.ts";
import { until } from "../support/wait-for.ts";
import { schemaFaults } from "./schema.ts";
import { ask, cleanUp, later, post, running } from "./support.ts";

leakCheck();
cleanUp();

const REQUESTS = Number(process.env.HOLDFAST_REQUESTS ?? (process.env.HOLDFAST_LONG === "1" ? 10_000_000 : 20_000));
const SEED = Number(process.env.HOLDFAST_SEED ?? Math.floor(Math.random() * 2 ** 31));
/** Connections that ask at a time. */
const AT_ONCE = 32;

// biome-ignore lint/suspicious/noExplicitAny: a document
const api = document("0.1.0") as any;
const PATHS = [...Object.keys(api.paths).filter((path) => path !== "/events"), "/", "/nothing", "/v1/claims/x", "/%00"];

const NASTY: readonly unknown[] = [
  0,
  -1,
  0.5,
  2 ** 53,
  2 ** 31,
  null,
  true,
  "",
  "-1",
  "1e3",
  "9".repeat(40),
  [],
  [[]],
  {},
  { key: "k", wait: 0, ttl: 100 },
  "\u0000",
  "\ud800",
  "\u001b[2J",
  "a".repeat(513),
  "é".repeat(300),
  "__proto__",
  "hf1.e30.AAAAAAAA",
  "wait.hf1.e30.AAAAAAAA",
];

interface Sent {
  readonly method: string;
  readonly path: string;
  readonly headers: { readonly [name: string]: string };
  readonly body: Buffer | null;
}

/** References that were answered; some are sent back. */
const references: string[] = [];

function bodyFor(path: string, random: SeededRandom): object {
  const maybe = (good: unknown): unknown => (random.chance(0.9) ? good : random.pick(NASTY));
  const reference = (): unknown => maybe(references.length > 0 ? random.pick(references) : "hf1.x.y");
  switch (path) {
    case "/v1/claims":
      return {
        ...(random.chance(0.9)
          ? { key: maybe(random.pick(["a", "b", "c"])) }
          : { keys: maybe([maybe("a"), maybe("d")]) }),
        wait: maybe(random.pick([0, 0, 1, "5ms"])),
        ttl: maybe(random.pick([100, 200, "1s"])),
        ...(random.chance(0.2) && { mode: maybe(random.pick(["shared", "exclusive", "semaphore"])) }),
        ...(random.chance(0.2) && { limit: maybe(3), permits: maybe(1) }),
        ...(random.chance(0.2) && { label: maybe("fuzz") }),
      };
    case "/v1/claims/wait":
      return { reference: reference(), wait: maybe(1) };
    case "/v1/locks/revoke":
      return { key: maybe("a"), token: maybe("17"), reason: maybe("fuzz"), now: maybe(true) };
    default:
      return { reference: reference() };
  }
}

function textFor(path: string, random: SeededRandom): Buffer {
  let text = JSON.stringify(random.chance(0.95) ? bodyFor(path, random) : random.pick(NASTY)) ?? "";
  if (random.chance(0.03)) text = "[".repeat(random.int(50_000));
  if (random.chance(0.03)) text = text.replace(/\d+/, "1e400");
  if (random.chance(0.03)) text = text.replace("{", '{"wait":0,"wait":1,"__proto__":{"key":"x"},');
  const bytes = Buffer.from(text);
  if (random.chance(0.1) && bytes.length > 0) {
    const at = random.int(bytes.length);
    const before = bytes[at] as number;
    bytes[at] = random.int(256);
    // by default a request waits for 25 s, and a lease lasts 30 s: there are not so many of those here
    if (text.includes("wait") && !/"wait":.*"ttl":|"wait":[^,]*}$/.test(bytes.toString())) bytes[at] = before;
  }
  return random.chance(0.03) ? bytes.subarray(0, random.int(bytes.length + 1)) : bytes;
}

function nextRequest(random: SeededRandom, host: string): Sent {
  const rare = (value: string, otherwise: string): string => (random.chance(0.03) ? value : otherwise);
  const path = random.chance(0.7)
    ? random.pick(["/v1/claims", "/v1/claims/release", "/v1/claims/wait"])
    : random.pick(PATHS);
  const has = api.paths[path]?.post !== undefined ? "POST" : "GET";
  const method = random.chance(0.95) ? has : random.pick(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"]);
  const query = random.chance(0.1)
    ? random.pick(["?limit=5", "?limit=x", "?prefix=%zz", "?x", "?prefix=a&prefix=b"])
    : "";
  const body = method === "POST" || random.chance(0.02) ? textFor(path, random) : null;
  const headers: { [name: string]: string } = {
    host: rare("evil.example", host),
    ...(body !== null && {
      "content-type": rare("text/plain", "application/json"),
      "content-length": String(body.length),
    }),
  };
  if (random.chance(0.02)) headers.origin = random.pick(["null", `http://${host}`, "https://evil.example"]);
  if (random.chance(0.02)) headers["sec-fetch-site"] = random.pick(["cross-site", "none", "\u00e9"]);
  if (random.chance(0.02)) headers.authorization = random.pick(["Bearer x", "Basic x", "Bearer", ""]);
  if (random.chance(0.02)) headers["last-event-id"] = random.pick(["1", "x-1", ""]);
  return { method, path: path + query, headers, body };
}

interface Got {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
}

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

/** An answer that the document has. */
function check({ method, path }: Sent, { status, headers, text }: Got): void {
  expect(headers["cache-control"]).toBe("no-store");
  if (method === "HEAD" || status === 204) return expect(text).toBe("");
  if (status >= 400) {
    expect([status, headers["content-type"]]).toEqual([status, "application/problem+json"]);
    const problem = JSON.parse(text) as { status: number };
    expect(schemaFaults(problem, api.components.schemas.Problem, api)).toEqual([]);
    expect(problem.status).toBe(status);
    expect(status).not.toBe(500);
    return;
  }
  const operation = api.paths[path.split("?")[0] as string][method.toLowerCase()];
  const content = Object.values<{ schema?: object }>(operation.responses[status].content)[0];
  if (headers["content-type"] !== "application/json" || content?.schema === undefined) return;
  const value = JSON.parse(text) as { reference?: string };
  expect(schemaFaults(value, content.schema as Record<string, unknown>, api)).toEqual([]);
  if (value.reference !== undefined)
    references[references.length < 100 ? references.length : status % 100] = value.reference;
}

/**
 * A lock that is taken and given back amid all that. Its lease may only be over if the machine let this process, which is
 * all these clients and the server, wait for longer than that; who runs this beside something else sees it happen.
 */
async function healthy(url: string, turn: number): Promise<void> {
  const began = performance.now();
  const held = await post(url, "/v1/claims", { key: `healthy ${turn}`, wait: 0, ttl: "10s" });
  if (performance.now() - began < 10_000) expect([held.status, held.text]).toEqual([201, held.text]);
  if (held.status !== 201) return;
  const { status, text } = await post(url, "/v1/claims/release", { reference: held.json.reference });
  const took = performance.now() - began;
  expect(status === 200 || took >= 10_000, `${status} ${text} after ${took} ms`).toBe(true);
}

test(`the server stands ${REQUESTS} fuzzed requests (seed ${SEED})`, async () => {
  const random = seededRandom(SEED);
  // some of the nasty numbers are fine as leases, but too long to wait for their end
  const it = await running({ limits: { ttlMs: 10_000 } });
  const url = new URL(it.url);
  let sent = 0;
  const statuses = new Map<number, number>();
  const worker = async (): Promise<void> => {
    const line = new Line(Number(url.port));
    later(() => line.close());
    while (sent < REQUESTS) {
      const turn = ++sent;
      const asked = nextRequest(random, url.host);
      const got = await line.ask(asked, random.chance(0.01) ? random.int(5) : -1);
      if (got === null) continue;
      statuses.set(got.status, (statuses.get(got.status) ?? 0) + 1);
      check(asked, got);
      if (turn % 500 === 0) await healthy(it.url, turn);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  for (const status of [200, 201, 202, 400, 403, 404, 405, 409, 415]) expect([...statuses.keys()]).toContain(status);
  // every lease and every grace there was is over soon
  await until(() => it.stats().claims === 0, { within: 20_000, what: "the end of all claims" }).catch(async (error) => {
    throw new Error((await ask(it.url, "/v1/locks")).text, { cause: error });
  });
  expect(it.logged.filter((line) => !line.startsWith("a lock was"))).toEqual([]);
}, 7_200_000);

test(`connections that speak anything, cut at any byte, harm nobody (seed ${SEED})`, async () => {
  const random = seededRandom(SEED + 1);
  const it = await running({ limits: { ttlMs: 10_000 } });
  const { host, port } = new URL(it.url);
  const open = new Set<Socket>();
  const turns = Math.min(REQUESTS / 20, 20_000);
  for (let turn = 0; turn < turns; turn++) {
    const socket = connect({ host: "127.0.0.1", port: Number(port) });
    open.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => open.delete(socket));
    socket.resume();
    const pieces = Array.from({ length: 1 + random.int(3) }, () => {
      const { method, path, headers, body } = nextRequest(random, host);
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
