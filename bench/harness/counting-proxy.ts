/** A relay between a client and a server on Unix sockets that counts the lines each way. */

import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { createConnection, createServer } from "node:net";
import { parseEndpoint } from "./address.ts";

const LINE_FEED = 10;
/** The head of a frame that renews. */
const RENEWAL = Buffer.from('["renew",');

export interface CountingProxy {
  readonly address: string;
  /**
   * Lines so far, the first ones of each connection included, and frames that renew (but for one cut by a chunk's end).
   */
  counts(): { readonly up: number; readonly down: number; readonly renewals: number };
  close(): void;
}

/** Sees what goes each way; for a single connection. */
interface Watcher {
  up(chunk: Buffer): void;
  down(chunk: Buffer): void;
}

/** @param listen the path of its socket, or "tcp" */
export async function startCountingProxy(listen: string, target: string, watcher?: Watcher): Promise<CountingProxy> {
  let up = 0;
  let down = 0;
  let renewals = 0;
  const sockets = new Set<{ destroy(): void }>();
  const server = createServer({ noDelay: true }, (client) => {
    const store = createConnection(parseEndpoint(target));
    sockets.add(client).add(store);
    client.on("data", (chunk: Buffer) => {
      up += countLines(chunk);
      renewals += countMatches(chunk, RENEWAL);
      watcher?.up(chunk);
      store.write(chunk);
    });
    store.on("data", (chunk: Buffer) => {
      down += countLines(chunk);
      watcher?.down(chunk);
      client.write(chunk);
    });
    for (const [one, other] of [
      [client, store],
      [store, client],
    ] as const) {
      one.on("close", () => other.destroy());
      // told to the other side by the end of the stream
      one.on("error", () => one.destroy());
    }
  });
  if (listen === "tcp") server.listen(0, "127.0.0.1");
  else server.listen(listen);
  await once(server, "listening");
  return {
    address: listen === "tcp" ? `tcp:${(server.address() as AddressInfo).port}` : listen,
    counts: () => ({ up, down, renewals }),
    close() {
      for (const end of sockets) end.destroy();
      server.close();
    },
  };
}

function countLines(chunk: Buffer): number {
  return countMatches(chunk, LINE_FEED);
}

function countMatches(chunk: Buffer, pattern: Buffer | number): number {
  let count = 0;
  for (let offset = chunk.indexOf(pattern); offset !== -1; offset = chunk.indexOf(pattern, offset + 1)) count++;
  return count;
}
