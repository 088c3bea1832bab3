// A proxy to a ZooKeeper that counts requests by their operation, and can drop every watch event.

import type { AddressInfo, Socket } from "node:net";
import { connect, createServer } from "node:net";
import { FrameReader } from "../../../src/drivers/zookeeper/client/jute.ts";

const MAX_FRAME_BYTES = 1_048_576;
/** The xid of a frame that is an event; that of a ping is -2. */
const EVENT_XID = -1;

export interface FrameProxy {
  readonly address: { readonly host: string; readonly port: number };
  /** Events that were dropped. */
  events(): number;
  /** Requests that passed, without pings. @param operation only those with this number (records.ts) */
  requests(operation?: number): number;
  [Symbol.asyncDispose](): Promise<void>;
}

export async function createFrameProxy(
  target: { readonly host: string; readonly port: number },
  { dropsEvents }: { readonly dropsEvents: boolean },
): Promise<FrameProxy> {
  const sockets = new Set<Socket>();
  const operations: number[] = [];
  let events = 0;
  const listener = createServer((client) => {
    const server = connect(target);
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      sockets.add(from);
      const reader = new FrameReader(MAX_FRAME_BYTES);
      let isFirst = true;
      from.on("data", (chunk: Buffer) => {
        for (const frame of reader.push(chunk)) {
          const number = frame.readInt32BE(0);
          const isGreeting = isFirst;
          isFirst = false;
          if (from === client && !isGreeting && number > 0) operations.push(frame.readInt32BE(4));
          if (dropsEvents && from === server && !isGreeting && number === EVENT_XID) events++;
          else to.write(encodeFrame(frame));
        }
      });
      from.on("error", () => to.destroy());
      from.on("close", () => {
        sockets.delete(from);
        to.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  return {
    address: { host: "127.0.0.1", port: (listener.address() as AddressInfo).port },
    events: () => events,
    requests: (operation) => operations.filter((sent) => operation === undefined || sent === operation).length,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => listener.close(resolve));
    },
  };
}

function encodeFrame(frame: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeInt32BE(frame.length, 0);
  return Buffer.concat([length, frame]);
}
