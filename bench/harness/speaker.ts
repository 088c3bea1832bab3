/** Speaks the lock protocol with nothing of a client around it, so that what is measured is the server. */

import { once } from "node:events";
import type { Socket } from "node:net";
import { createConnection } from "node:net";
import { newId } from "../../src/ids.ts";
import { encodeHello, PROTOCOL, VERSION } from "../../src/protocol/hello.ts";
import { endpointOf } from "./address.ts";
import { takeLines } from "./lines.ts";

/** Claims that go out in one line. */
const TOGETHER = 500;

/** A claim that the server was asked for. */
export interface Placed {
  readonly id: string;
  /** Settles when it is held. */
  readonly granted: Promise<void>;
}

export class Speaker {
  readonly #socket: Socket;
  readonly #ttlMs: number;
  #start = "";
  #calls = 0;
  readonly #replies = new Map<number, (result: readonly unknown[]) => void>();
  readonly #grants = new Map<string, () => void>();

  private constructor(socket: Socket, ttlMs: number) {
    this.#socket = socket;
    this.#ttlMs = ttlMs;
  }

  /** @param ttlMs of every claim: nothing is renewed, so longer than the measurement */
  static async open(address: string, ttlMs: number): Promise<Speaker> {
    const socket = createConnection(endpointOf(address));
    await once(socket, "connect");
    const speaker = new Speaker(socket, ttlMs);
    const hello = { protocol: PROTOCOL, version: VERSION, label: "", session: newId(), tether: false, pid: null };
    socket.write(encodeHello({ ...hello, pidStart: null }));
    await new Promise<void>((resolve) => {
      socket.on(
        "data",
        takeLines((line) => {
          if (speaker.#start !== "") return speaker.#line(line);
          speaker.#start = (JSON.parse(line) as { hello: { start: string } }).hello.start;
          resolve();
        }),
      );
    });
    return speaker;
  }

  /** Places exclusive claims; settles when the server has answered each. */
  async claim(keys: readonly string[]): Promise<Placed[]> {
    const all: Placed[] = [];
    for (let at = 0; at < keys.length; at += TOGETHER) {
      const frames: string[] = [];
      const answered: Promise<void>[] = [];
      for (const key of keys.slice(at, at + TOGETHER)) {
        const id = newId();
        const granted = new Promise<void>((resolve) => this.#grants.set(id, resolve));
        all.push({ id, granted });
        const n = ++this.#calls;
        frames.push(`["claim",${n},"${id}",["${key}"],${this.#ttlMs}]`);
        answered.push(
          this.#reply(n).then(([state]) => {
            if (state === "held") this.#granted(id);
          }),
        );
      }
      this.#say(frames);
      await Promise.all(answered);
    }
    return all;
  }

  async release(id: string): Promise<void> {
    const n = ++this.#calls;
    const answered = this.#reply(n);
    this.#say([`["release",${n},["${id}"]]`]);
    await answered;
  }

  close(): void {
    this.#socket.destroy();
  }

  #say(frames: readonly string[]): void {
    this.#socket.write(`["${this.#start}",${frames.join()}]\n`);
  }

  #reply(n: number): Promise<readonly unknown[]> {
    return new Promise((resolve) => this.#replies.set(n, resolve));
  }

  #granted(id: string): void {
    this.#grants.get(id)?.();
    this.#grants.delete(id);
  }

  #line(line: string): void {
    const [, ...frames] = JSON.parse(line) as [string, ...(readonly [string, never, never])[]];
    for (const [verb, name, result] of frames) {
      if (verb === "push" && result[0] === "held") this.#granted(name);
      if (verb === "error") throw new Error(`the server refused: ${line}`);
      if (verb !== "ok") continue;
      this.#replies.get(name)?.(result);
      this.#replies.delete(name);
    }
  }
}
