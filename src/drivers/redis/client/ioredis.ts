/** ioredis and iovalkey as a link: one server, or the master that Sentinels name. */

import { addressOf } from "./address.ts";
import type { Ears, EarsEvents, IoredisLike, Link, Side } from "./shapes.ts";
import { complaintsOf } from "./shapes.ts";

export function ioredisLink(client: IoredisLike): Link {
  return {
    get isReady() {
      return client.status === "ready";
    },
    isCluster: false,
    address: addressOf(client),
    get database() {
      return client.condition?.select ?? 0;
    },
    start: () => startIoredis(client),
    own: () => own(client),
    send: ([command = "", ...words]) => client.call(command, ...words),
    watch({ up, down }) {
      client.on("ready", up);
      client.on("close", down);
      return () => {
        client.off("ready", up);
        client.off("close", down);
      };
    },
    complaints: (told) => complaintsOf(client, told),
    nodeOf: () => "",
    ears: (_, events) => ioredisEars(client, events, false),
    side: (_, broken) => ioredisSide(client, broken),
    end: () => client.disconnect(),
  };
}

/** "wait": made with lazyConnect; any command would connect it, too. @throws why it could not */
export async function startIoredis(client: Pick<IoredisLike, "status" | "on" | "off" | "connect">): Promise<void> {
  if (client.status !== "wait") return;
  let why: unknown;
  const note = (error: unknown): void => {
    why ??= error;
  };
  client.on("error", note);
  try {
    await client.connect();
  } catch (error) {
    throw why ?? error; // what connect() throws is only that the connection is closed
  } finally {
    client.off("error", note);
  }
}

function own(client: IoredisLike): void {
  client.on("error", () => undefined);
  client.on("connect", () => void client.stream?.unref?.());
  client.stream?.unref?.();
}

/** What every connection of ours beside a client is made with: it connects once, and names are what we say. */
const ONCE = {
  lazyConnect: true,
  autoResubscribe: false,
  keyPrefix: "",
  enableOfflineQueue: true,
  readOnly: false,
  retryStrategy: null,
};

interface Beside {
  readonly made: IoredisLike;
  end(): void;
}

function beside(client: IoredisLike, broken: () => void): Beside {
  const made = client.duplicate(ONCE);
  let isOver = false;
  const over = (): void => {
    if (isOver) return;
    isOver = true;
    broken();
  };
  own(made);
  made.on("end", over);
  made.on("close", over);
  made.connect().catch(over);
  return {
    made,
    end() {
      isOver = true;
      made.disconnect();
    },
  };
}

/** @param isSharded for sharded channels, of a node of a Cluster */
export function ioredisEars(client: IoredisLike, events: EarsEvents, isSharded: boolean): Ears {
  const { made: ears, end } = beside(client, events.broken);
  // a subscription that the server ended comes as "moved", or in older versions as a reply that nobody asked for
  ears.on("moved", () => events.unsettled());
  ears.on("error", () => events.unsettled());
  const heard = (channel: unknown, message: unknown): void => events.heard(String(channel), String(message));
  ears.on(isSharded ? "smessage" : "message", heard);
  return { subscribe: (channel) => (isSharded ? ears.ssubscribe(channel) : ears.subscribe(channel)), end };
}

export function ioredisSide(client: IoredisLike, broken: () => void): Side {
  const { made, end } = beside(client, broken);
  return { send: ([command = "", ...words]) => made.call(command, ...words), end };
}
