// Scripted servers for the client's state machine, under a clock that tests advance.

import type { ServerConnector } from "../../../../../src/drivers/zookeeper/client/connection.ts";
import { FrameReader, JuteReader, JuteWriter } from "../../../../../src/drivers/zookeeper/client/jute.ts";
import type { ServerAddress } from "../../../../../src/drivers/zookeeper/client/server-list.ts";
import type { TransportEvents } from "../../../../../src/net/transport.ts";

/** One connection, as its server sees it. */
type ScriptedPeer = {
  readonly address: ServerAddress;
  /** Has the client given it up? */
  readonly isClosed: boolean;
  /** The requests since the last call, as `[xid, op]`; null for the first frame. */
  sent(): ([number, number] | null)[];
  /** The connection is open; the client sends its hello. */
  accept(): void;
  /** The last transaction that the client has seen, according to its hello. */
  lastSeen(): bigint;
  /** Opens a session; timeoutMs 0: the requested one has expired. */
  welcome(session: { readonly id: bigint; readonly timeoutMs: number }): void;
  /** Answers a request without a result: delete, or with code an error. */
  answer(xid: number, code?: number): void;
  /** The connection ends. */
  cut(error?: Error): void;
};

export type ScriptedServers = {
  readonly dial: ServerConnector;
  /** All connections so far, the newest last. */
  readonly peers: readonly ScriptedPeer[];
  /** The newest connection. */
  readonly peer: ScriptedPeer;
};

export function createScriptedServers(): ScriptedServers {
  const peers: ScriptedPeer[] = [];
  const connector: ServerConnector = (address, events) => {
    const frames: Buffer[] = [];
    const reader = new FrameReader(1_000_000);
    const closed = { is: false };
    peers.push(createPeer(address, events, frames, closed));
    return {
      write: (data) => void frames.push(...reader.push(Buffer.from(data as Uint8Array))),
      close: () => {
        closed.is = true;
      },
      keepAlive: () => undefined,
    };
  };
  return {
    dial: connector,
    peers,
    get peer() {
      return peers.at(-1) as ScriptedPeer;
    },
  };
}

function createPeer(
  address: ServerAddress,
  events: TransportEvents,
  frames: Buffer[],
  closed: { is: boolean },
): ScriptedPeer {
  let hasHandshake = false;
  const say = (writer: JuteWriter): void => {
    if (!closed.is) events.onData(writer.frame());
  };
  return {
    address,
    get isClosed() {
      return closed.is;
    },
    sent() {
      return frames.splice(0).map((frame) => {
        if (!hasHandshake) {
          hasHandshake = true;
          return null;
        }
        const reader = new JuteReader(frame);
        return [reader.int(), reader.int()];
      });
    },
    accept: () => events.onConnected?.(),
    lastSeen: () => new JuteReader((frames[0] as Buffer).subarray(4)).long(),
    welcome: ({ id, timeoutMs }) => say(new JuteWriter().int(0).int(timeoutMs).long(id).buffer(Buffer.alloc(16, 1))),
    answer: (xid, code = 0) => say(new JuteWriter().int(xid).long(1n).int(code)),
    cut(error) {
      closed.is = true;
      events.onClosed(error ?? null);
    },
  };
}
