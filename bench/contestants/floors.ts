/**
 * The floors: what the socket and the frames cost when nothing is promised. One JSON array a line, all calls of one turn
 * of the event loop in one line, as in the lock protocol; no lease, token, session, batching by kind, or error handling.
 */

import { once } from "node:events";
import { createConnection } from "node:net";
import { endpointOf } from "../harness/address.ts";
import { takeLines } from "../harness/lines.ts";
import type { Contestant } from "../harness/workload.ts";

interface Held {
  readonly key: string;
  readonly id: number;
}

type Send = (kind: "claim" | "release", held: Held) => Promise<unknown>;

/** A bare request and reply for each half of the pair. */
export async function openFloorA(socket: string): Promise<Contestant<Held>> {
  return open(socket);
}

/** The same frames before a bare map of queues, which answers a claim when its turn has come. */
export async function openFloorB(socket: string): Promise<Contestant<Held>> {
  return open(socket);
}

async function open(path: string): Promise<Contestant<Held>> {
  const { send, close } = await connection(path);
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

async function connection(path: string): Promise<{ send: Send; close(): void }> {
  const socket = createConnection(endpointOf(path));
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
    takeLines((line) => {
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
