/** A relay between a client and a server on Unix sockets that counts the lines each way. */

import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { createConnection, createServer } from "node:net";
import { endpointOf } from "./address.ts";

const LINE_FEED = 10;
/** The head of a frame that renews. */
const RENEWAL = Buffer.from('["renew",');

export interface Relay {
  readonly address: string;
  /** Lines so far, the first ones of each connection included, and frames that renew (but for one cut by a chunk's end). */
  counts(): { readonly up: number; readonly down: number; readonly renewals: number };
  close(): void;
}

/** Sees what goes each way; for a single connection. */
interface Watcher {
  up(chunk: Buffer): void;
  down(chunk: Buffer): void;
}

/** @param listen the path of its socket, or "tcp" */
export async function relay(listen: string, target: string, watcher?: Watcher): Promise<Relay> {
  let up = 0;
  let down = 0;
  let renewals = 0;
  const ends = new Set<{ destroy(): void }>();
  const server = createServer({ noDelay: true }, (client) => {
    const store = createConnection(endpointOf(target));
    ends.add(client).add(store);
    client.on("data", (chunk: Buffer) => {
      up += linesIn(chunk);
      renewals += countOf(chunk, RENEWAL);
      watcher?.up(chunk);
      store.write(chunk);
    });
    store.on("data", (chunk: Buffer) => {
      down += linesIn(chunk);
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
      for (const end of ends) end.destroy();
      server.close();
    },
  };
}

function linesIn(chunk: Buffer): number {
  return countOf(chunk, LINE_FEED);
}

function countOf(chunk: Buffer, what: Buffer | number): number {
  let count = 0;
  for (let at = chunk.indexOf(what); at !== -1; at = chunk.indexOf(what, at + 1)) count++;
  return count;
}
