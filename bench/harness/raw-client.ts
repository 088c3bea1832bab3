/** Speaks the lock protocol with nothing of a client around it, so that what is measured is the server. */

import { once } from "node:events";
import type { Socket } from "node:net";
import { createConnection } from "node:net";
import { encodeClientHello, PACKAGE_VERSION, PROTOCOL_VERSION } from "../../src/protocol/handshake.ts";
import { randomId } from "../../src/util/ids.ts";
import { parseEndpoint } from "./address.ts";
import { splitLines } from "./line-splitter.ts";

/** Claims that go out in one line. */
const BATCH_SIZE = 500;

/** A claim that the server was asked for. */
export interface PlacedClaim {
  readonly id: string;
  /** Settles when it is held. */
  readonly granted: Promise<void>;
}

export class RawClient {
  readonly #socket: Socket;
  readonly #ttlMs: number;
  #runId = "";
  #calls = 0;
  readonly #replies = new Map<number, (result: readonly unknown[]) => void>();
  readonly #grants = new Map<string, () => void>();

  private constructor(socket: Socket, ttlMs: number) {
    this.#socket = socket;
    this.#ttlMs = ttlMs;
  }

  /** @param ttlMs of every claim: nothing is renewed, so longer than the measurement */
  static async open(address: string, ttlMs: number): Promise<RawClient> {
    const socket = createConnection(parseEndpoint(address));
    await once(socket, "connect");
    const rawClient = new RawClient(socket, ttlMs);
    const hello = {
      protocol: PROTOCOL_VERSION,
      version: PACKAGE_VERSION,
      label: "",
      session: randomId(),
      keepSession: false,
      pid: null,
    };
    socket.write(encodeClientHello({ ...hello, pidStart: null }));
    await new Promise<void>((resolve) => {
      socket.on(
        "data",
        splitLines((line) => {
          if (rawClient.#runId !== "") return rawClient.#handleLine(line);
          rawClient.#runId = (JSON.parse(line) as { hello: { runId: string } }).hello.runId;
          resolve();
        }),
      );
    });
    return rawClient;
  }

  /** Places exclusive claims; settles when the server has answered each. */
  async claim(keys: readonly string[]): Promise<PlacedClaim[]> {
    const placedClaims: PlacedClaim[] = [];
    for (let index = 0; index < keys.length; index += BATCH_SIZE) {
      const frames: string[] = [];
      const answers: Promise<void>[] = [];
      for (const key of keys.slice(index, index + BATCH_SIZE)) {
        const id = randomId();
        const granted = new Promise<void>((resolve) => this.#grants.set(id, resolve));
        placedClaims.push({ id, granted });
        const n = ++this.#calls;
        frames.push(`["claim",${n},"${id}",["${key}"],${this.#ttlMs}]`);
        answers.push(
          this.#reply(n).then(([state]) => {
            if (state === "held") this.#resolveGrant(id);
          }),
        );
      }
      this.#send(frames);
      await Promise.all(answers);
    }
    return placedClaims;
  }

  async release(id: string): Promise<void> {
    const n = ++this.#calls;
    const answer = this.#reply(n);
    this.#send([`["release",${n},["${id}"]]`]);
    await answer;
  }

  close(): void {
    this.#socket.destroy();
  }

  #send(frames: readonly string[]): void {
    this.#socket.write(`["${this.#runId}",${frames.join()}]\n`);
  }

  #reply(n: number): Promise<readonly unknown[]> {
    return new Promise((resolve) => this.#replies.set(n, resolve));
  }

  #resolveGrant(id: string): void {
    this.#grants.get(id)?.();
    this.#grants.delete(id);
  }

  #handleLine(line: string): void {
    const [, ...frames] = JSON.parse(line) as [string, ...(readonly [string, never, never])[]];
    for (const [verb, name, result] of frames) {
      if (verb === "push" && result[0] === "held") this.#resolveGrant(name);
      if (verb === "error") throw new Error(`the server refused: ${line}`);
      if (verb !== "ok") continue;
      this.#replies.get(name)?.(result);
      this.#replies.delete(name);
    }
  }
}
