// A client of the lock protocol with nothing behind it: it says what a test tells it to say, right or wrong.

import { once } from "node:events";
import type { Socket, TcpNetConnectOpts } from "node:net";
import { connect } from "node:net";
import { connect as connectSecurely } from "node:tls";
import { until } from "../../src/testing/until.ts";
import { randomId } from "../../src/util/ids.ts";

/**
 * Where the server is: as node:net takes it. `localAddress` (127.0.0.2, ...) makes it a client of another address; `ca`,
 * the certificate of its issuer, makes it speak TLS.
 */
export type RawAddress = { readonly path: string } | (TcpNetConnectOpts & { readonly ca?: string });

/** A server's address ("holdfast+unix:/path", "holdfast://127.0.0.1:port", or a url) for a raw client. */
export function parseRawAddress(text: string): RawAddress {
  const path = /unix:(\/.*)$/.exec(text)?.[1];
  if (path !== undefined) return { path };
  const { hostname, port } = new URL(text.replace(/^holdfasts?:/, "http:"));
  return { host: hostname, port: Number(port), noDelay: true };
}

/** What a server says of a claim, as it stands in the frame. */
export type RawAnswer = readonly [state: "held" | "waiting" | "none", ...rest: unknown[]];

export class RawClient {
  readonly socket: Socket;
  readonly session: string;
  /** Whole lines that came and that no reply or push was made of. */
  readonly lines: string[] = [];
  /** Replies to frames that were not sent by call(). */
  readonly unexpectedLines: (readonly unknown[])[] = [];
  /** Answers that were pushed, by claim. */
  readonly pushed: Map<string, RawAnswer> = new Map();
  runId = "";
  serverHello: Readonly<Record<string, unknown>> = {};
  isClosed = false;
  /** The code of the error with which the server ended the connection. */
  refusal: string | null = null;
  #calls = 0;
  #text = "";
  readonly #replies = new Map<number, (frame: readonly unknown[]) => void>();

  constructor(socket: Socket, session: string) {
    this.socket = socket;
    this.session = session;
    // each call waits for the end, too
    socket.setMaxListeners(0);
    socket.setEncoding("utf8").on("data", (text: string) => this.#read(text));
    // "close" follows
    socket.on("error", () => undefined);
    socket.on("close", () => {
      this.isClosed = true;
    });
  }

  /** Connected, and nothing said yet. */
  static async connect(address: RawAddress, session: string = randomId()): Promise<RawClient> {
    const secure = "ca" in address && address.ca !== undefined;
    const socket = secure ? connectSecurely(address) : connect(address);
    await once(socket, secure ? "secureConnect" : "connect");
    return new RawClient(socket, session);
  }

  /** Connected and greeted. `more`: further fields of the hello. */
  static async open(
    address: RawAddress,
    { session = randomId(), ...more }: { readonly session?: string; readonly [field: string]: unknown } = {},
  ): Promise<RawClient> {
    const client = await RawClient.connect(address, session);
    await client.sendHello(more);
    return client;
  }

  async sendHello(fields: Readonly<Record<string, unknown>> = {}): Promise<void> {
    this.write(`${JSON.stringify({ hello: { protocol: 1, session: this.session, ...fields } })}\n`);
    await until(() => this.runId !== "" || this.isClosed || this.refusal !== null, {
      within: 10_000,
      what: "the server's hello",
    });
    if (this.runId === "") throw new Error(`the server refused the hello: ${this.lines.at(-1) ?? "no answer"}`);
  }

  write(data: string | Buffer): void {
    if (this.socket.writable) this.socket.write(data);
  }

  /** A line of these frames, each written as JSON. */
  send(...frames: readonly string[]): void {
    this.write(`["${this.runId}",${frames.join()}]\n`);
  }

  /** A call: its verb and what stands behind its number; settles with the result. */
  call(verb: string, ...args: readonly unknown[]): Promise<readonly unknown[]> {
    const n = ++this.#calls;
    const reply = new Promise<readonly unknown[]>((resolve, reject) => {
      this.#replies.set(n, ([kind, , ...result]) => {
        if (kind === "ok") resolve(result[0] as readonly unknown[]);
        else reject(new Error(`${result[0]}: ${result[1]}`));
      });
      this.socket.once("close", () => reject(new Error(`closed: ${this.refusal}`)));
    });
    this.send(JSON.stringify([verb, n, ...args]));
    return reply;
  }

  /** An exclusive claim of this key. */
  claim(id: string, key: string, ttlMs: number | "session" = 30_000, options: object = {}): Promise<RawAnswer> {
    return this.call("claim", id, [key], ttlMs, options) as Promise<readonly unknown[]> as Promise<RawAnswer>;
  }

  async release(id: string): Promise<boolean> {
    return (await this.call("release", [id]))[0] === 1;
  }

  async waitUntilClosed(timeoutMs = 10_000): Promise<void> {
    await until(() => this.isClosed, { within: timeoutMs, what: "the server to end the connection" });
  }

  /** The end, with RST. */
  reset(): void {
    this.socket.resetAndDestroy();
  }

  end(): void {
    this.socket.destroy();
  }

  #read(text: string): void {
    const lines = (this.#text + text).split("\n");
    this.#text = lines.pop() ?? "";
    for (const line of lines) this.#line(line);
  }

  #line(line: string): void {
    const refusal = /^\{"error":\{"code":"(\w+)"/.exec(line)?.[1];
    if (refusal !== undefined) {
      this.refusal = refusal;
      this.lines.push(line);
      return;
    }
    if (this.runId === "" && line.startsWith('{"hello"')) {
      this.serverHello = (JSON.parse(line) as { hello: Record<string, unknown> }).hello;
      this.runId = String(this.serverHello.runId);
      return;
    }
    if (!line.startsWith("[")) {
      this.lines.push(line);
      return;
    }
    for (const frame of (JSON.parse(line) as unknown[]).slice(1) as (readonly unknown[])[]) this.#frame(frame);
  }

  #frame(frame: readonly unknown[]): void {
    const [kind, name, answer] = frame;
    if (kind === "push") this.pushed.set(name as string, answer as RawAnswer);
    if (kind !== "ok" && kind !== "error") return;
    const reply = this.#replies.get(name as number);
    if (reply === undefined) this.unexpectedLines.push(frame);
    reply?.(frame);
    this.#replies.delete(name as number);
  }
}

/** Clients that watch all events so many times together, as often on each connection as one may. */
export async function openWatches(address: RawAddress, count: number, hello: object = {}): Promise<RawClient[]> {
  const clients: RawClient[] = [];
  for (let rest = count; rest > 0; rest -= 16) {
    const client = await RawClient.open(address, { ...hello });
    await Promise.all(Array.from({ length: Math.min(rest, 16) }, () => client.call("watch", "")));
    clients.push(client);
  }
  return clients;
}
