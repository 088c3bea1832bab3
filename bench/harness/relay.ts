/** A relay between a client and a server on Unix sockets that counts the lines each way. */

import { once } from "node:events";
import { createConnection, createServer } from "node:net";

const LINE_FEED = 10;

export interface Relay {
  /** Lines so far, the first ones of each connection included. */
  counts(): { readonly up: number; readonly down: number };
  close(): void;
}

export async function relay(path: string, target: string): Promise<Relay> {
  let up = 0;
  let down = 0;
  const ends = new Set<{ destroy(): void }>();
  const server = createServer((client) => {
    const store = createConnection(target);
    ends.add(client).add(store);
    client.on("data", (chunk: Buffer) => {
      up += linesIn(chunk);
      store.write(chunk);
    });
    store.on("data", (chunk: Buffer) => {
      down += linesIn(chunk);
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
  server.listen(path);
  await once(server, "listening");
  return {
    counts: () => ({ up, down }),
    close() {
      for (const end of ends) end.destroy();
      server.close();
    },
  };
}

function linesIn(chunk: Buffer): number {
  let lines = 0;
  for (let at = chunk.indexOf(LINE_FEED); at !== -1; at = chunk.indexOf(LINE_FEED, at + 1)) lines++;
  return lines;
}
