// One connection after the other to a server of node:http, without a socket: requests go in, answers come out.

import { Duplex } from "node:stream";
import type { Got, Sent } from "./fuzzed.ts";

export class Pipe {
  readonly #open: (stream: Duplex) => void;
  #stream: Duplex | null = null;
  #text = "";

  /** open: makes a stream a connection of the server. */
  constructor(open: (stream: Duplex) => void) {
    this.#open = open;
  }

  /** The server has ended it, or we have; the next question opens another one. */
  get ended(): boolean {
    return this.#stream === null;
  }

  ask({ method, path, headers, body }: Sent): void {
    let head = `${method} ${path} HTTP/1.1\r\n`;
    for (const name in headers) head += `${name}: ${headers[name]}\r\n`;
    const stream = this.#stream ?? this.#connected();
    stream.push(Buffer.from(`${head}\r\n`, "latin1"));
    if (body !== null && body.length > 0) stream.push(body);
  }

  /** The answer to the question asked last; null: it has not come. */
  answer(method: string): Got | null {
    const end = this.#text.indexOf("\r\n\r\n");
    if (end === -1) return null;
    const [first = "", ...lines] = this.#text.slice(0, end).split("\r\n");
    const headers: Record<string, string> = {};
    for (const line of lines) {
      const at = line.indexOf(": ");
      headers[line.slice(0, at).toLowerCase()] = line.slice(at + 2);
    }
    const length = method === "HEAD" ? 0 : Number(headers["content-length"] ?? 0);
    // read as latin1: a character is a byte
    if (this.#text.length < end + 4 + length) return null;
    const text = this.#text.slice(end + 4, end + 4 + length);
    this.#text = this.#text.slice(end + 4 + length);
    if (headers.connection === "close" || method === "HEAD") this.cut();
    return { status: Number(first.split(" ")[1]), headers, text: Buffer.from(text, "latin1").toString() };
  }

  /** Ends it as a client does that has gone. */
  cut(): void {
    this.#stream?.destroy();
    this.#stream = null;
  }

  #connected(): Duplex {
    this.#text = "";
    const stream = new Duplex({
      read: () => undefined,
      write: (chunk: Buffer, _encoding, done) => {
        if (this.#stream === stream) this.#text += chunk.toString("latin1");
        done();
      },
    });
    const gone = (): void => {
      if (this.#stream === stream) this.#stream = null;
    };
    stream.on("error", () => undefined).on("close", gone);
    this.#stream = stream;
    this.#open(stream);
    return stream;
  }
}
