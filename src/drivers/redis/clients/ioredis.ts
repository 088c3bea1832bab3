/** The adapter for ioredis and iovalkey: a single server, or the master that Sentinels name. */

import { readAddress } from "./address.ts";
import type { ClientAdapter, CommandConnection, IoredisLike, Subscriber, SubscriberEvents } from "./types.ts";
import { watchClientErrors } from "./types.ts";

export function adaptIoredis(client: IoredisLike): ClientAdapter {
  return {
    get isReady() {
      return client.status === "ready";
    },
    isCluster: false,
    address: readAddress(client),
    get database() {
      return client.condition?.select ?? 0;
    },
    connect: () => connectIoredis(client),
    takeOwnership: () => takeOwnership(client),
    send: ([command = "", ...args]) => client.call(command, ...args),
    watchConnection({ onConnected, onDisconnected }) {
      client.on("ready", onConnected);
      client.on("close", onDisconnected);
      return () => {
        client.off("ready", onConnected);
        client.off("close", onDisconnected);
      };
    },
    watchErrors: (onError) => watchClientErrors(client, onError),
    resolveMaster: () => "",
    openSubscriber: (_, events) => openIoredisSubscriber(client, events, false),
    openCommandConnection: (_, onDisconnected) => openIoredisCommandConnection(client, onDisconnected),
    disconnect: () => client.disconnect(),
  };
}

/** The status "wait" means lazyConnect: the client connects on first use. @throws the first connection error */
export async function connectIoredis(client: Pick<IoredisLike, "status" | "on" | "off" | "connect">): Promise<void> {
  if (client.status !== "wait") return;
  let firstError: unknown;
  const recordError = (error: unknown): void => {
    firstError ??= error;
  };
  client.on("error", recordError);
  try {
    await client.connect();
  } catch (error) {
    throw firstError ?? error; // connect() itself reports only "Connection is closed."
  } finally {
    client.off("error", recordError);
  }
}

function takeOwnership(client: IoredisLike): void {
  client.on("error", () => undefined);
  client.on("connect", () => void client.stream?.unref?.());
  client.stream?.unref?.();
}

/** Options of the additional connections: they connect once, and channel names get no prefix. */
const ONE_SHOT_OPTIONS = {
  lazyConnect: true,
  autoResubscribe: false,
  keyPrefix: "",
  enableOfflineQueue: true,
  readOnly: false,
  retryStrategy: null,
};

interface SiblingConnection {
  readonly client: IoredisLike;
  disconnect(): void;
}

function openSibling(client: IoredisLike, onDisconnected: () => void): SiblingConnection {
  const sibling = client.duplicate(ONE_SHOT_OPTIONS);
  let isClosed = false;
  const onClosed = (): void => {
    if (isClosed) return;
    isClosed = true;
    onDisconnected();
  };
  takeOwnership(sibling);
  sibling.on("end", onClosed);
  sibling.on("close", onClosed);
  sibling.connect().catch(onClosed);
  return {
    client: sibling,
    disconnect() {
      isClosed = true;
      sibling.disconnect();
    },
  };
}

/** @param isSharded subscribe to sharded channels, on a node of a Cluster */
export function openIoredisSubscriber(client: IoredisLike, events: SubscriberEvents, isSharded: boolean): Subscriber {
  const { client: subscriber, disconnect } = openSibling(client, events.onDisconnected);
  // ioredis reports a subscription that the server ended as "moved", older versions as an error for an unexpected reply
  subscriber.on("moved", () => events.onMaybeUnsubscribed());
  subscriber.on("error", () => events.onMaybeUnsubscribed());
  const onMessage = (channel: unknown, message: unknown): void => events.onMessage(String(channel), String(message));
  subscriber.on(isSharded ? "smessage" : "message", onMessage);
  return {
    subscribe: (channel) => (isSharded ? subscriber.ssubscribe(channel) : subscriber.subscribe(channel)),
    disconnect,
  };
}

export function openIoredisCommandConnection(client: IoredisLike, onDisconnected: () => void): CommandConnection {
  const { client: connection, disconnect } = openSibling(client, onDisconnected);
  return { send: ([command = "", ...args]) => connection.call(command, ...args), disconnect };
}
