/**
 * The floors: what the socket and the frames cost when nothing is promised. One JSON array a line, all calls of one
 * turn of the event loop in one line, as in the lock protocol; no lease, token, session, batching by kind, or error
 * handling.
 */

import { once } from "node:events";
import { createConnection } from "node:net";
import { parseEndpoint } from "../harness/address.ts";
import type { LockImplementation } from "../harness/closed-loop.ts";
import { splitLines } from "../harness/line-splitter.ts";

interface HeldLock {
  readonly key: string;
  readonly id: number;
}

type SendRequest = (kind: "claim" | "release", held: HeldLock) => Promise<unknown>;

/** A bare request and reply for each half of the pair. */
export async function openEchoBaseline(socket: string): Promise<LockImplementation<HeldLock>> {
  return openBaseline(socket);
}

/** The same frames before a bare map of queues, which answers a claim when its turn has come. */
export async function openQueueBaseline(socket: string): Promise<LockImplementation<HeldLock>> {
  return openBaseline(socket);
}

async function openBaseline(path: string): Promise<LockImplementation<HeldLock>> {
  const { send, close } = await openConnection(path);
  let claims = 0;
  return {
    async acquire(key) {
      const held = { key, id: ++claims };
      await send("claim", held);
      return held;
    },
    release: (held) => send("release", held),
    close: async () => close(),
  };
}

async function openConnection(path: string): Promise<{ send: SendRequest; close(): void }> {
  const socket = createConnection(parseEndpoint(path));
  await once(socket, "connect");
  const waiting = new Map<number, (answer: unknown) => void>();
  let calls = 0;
  let frames: string[] = [];
  const flush = (): void => {
    socket.write(`[${frames.join()}]\n`);
    frames = [];
  };
  socket.on(
    "data",
    splitLines((line) => {
      for (const [number, answer] of JSON.parse(line) as [number, unknown][]) {
        waiting.get(number)?.(answer);
        waiting.delete(number);
      }
    }),
  );
  return {
    send: (kind, { key, id }) =>
      new Promise((resolve) => {
        const number = ++calls;
        waiting.set(number, resolve);
        // after all that runs in this turn, so that its calls share a line
        if (frames.push(`["${kind}",${number},"${key}",${id}]`) === 1) process.nextTick(flush);
      }),
    close: () => socket.destroy(),
  };
}
