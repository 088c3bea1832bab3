// One connection after another to a server of node:http, without a socket: requests go in, answers come out.

import { Duplex } from "node:stream";
import type { FuzzRequest, RawResponse } from "./request-generator.ts";

export class InMemorySocket {
  readonly #accept: (stream: Duplex) => void;
  #stream: Duplex | null = null;
  #received = "";

  /** open: makes a stream a connection of the server. */
  constructor(open: (stream: Duplex) => void) {
    this.#accept = open;
  }

  /** It was ended by the server or the client; the next request opens another one. */
  get isClosed(): boolean {
    return this.#stream === null;
  }

  send({ method, path, headers, body }: FuzzRequest): void {
    let head = `${method} ${path} HTTP/1.1\r\n`;
    for (const name in headers) head += `${name}: ${headers[name]}\r\n`;
    const stream = this.#stream ?? this.#connect();
    stream.push(Buffer.from(`${head}\r\n`, "latin1"));
    if (body !== null && body.length > 0) stream.push(body);
  }

  /** The answer to the last request; null: it has not arrived. */
  takeResponse(method: string): RawResponse | null {
    const end = this.#received.indexOf("\r\n\r\n");
    if (end === -1) return null;
    const [first = "", ...lines] = this.#received.slice(0, end).split("\r\n");
    const headers: Record<string, string> = {};
    for (const line of lines) {
      const separator = line.indexOf(": ");
      headers[line.slice(0, separator).toLowerCase()] = line.slice(separator + 2);
    }
    const length = method === "HEAD" ? 0 : Number(headers["content-length"] ?? 0);
    // read as latin1: a character is a byte
    if (this.#received.length < end + 4 + length) return null;
    const text = this.#received.slice(end + 4, end + 4 + length);
    this.#received = this.#received.slice(end + 4 + length);
    if (headers.connection === "close" || method === "HEAD") this.disconnect();
    return { status: Number(first.split(" ")[1]), headers, text: Buffer.from(text, "latin1").toString() };
  }

  /** Ends it as a disconnected client does. */
  disconnect(): void {
    this.#stream?.destroy();
    this.#stream = null;
  }

  #connect(): Duplex {
    this.#received = "";
    const stream = new Duplex({
      read: () => undefined,
      write: (chunk: Buffer, _encoding, callback) => {
        if (this.#stream === stream) this.#received += chunk.toString("latin1");
        callback();
      },
    });
    const onEnd = (): void => {
      if (this.#stream === stream) this.#stream = null;
    };
    stream.on("error", () => undefined).on("close", onEnd);
    this.#stream = stream;
    this.#accept(stream);
    return stream;
  }
}
