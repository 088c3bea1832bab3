/** The adapters for node-redis: a single server and a Cluster. */

import { toHashSlot } from "../hash-slot.ts";
import type {
  ClientAdapter,
  CommandConnection,
  NodeRedisClusterLike,
  NodeRedisLike,
  Subscriber,
  SubscriberEvents,
} from "./types.ts";
import { readAddress, watchClientErrors } from "./types.ts";

export function adaptNodeRedis(client: NodeRedisLike): ClientAdapter {
  let connecting: Promise<unknown> | null = null;
  let stop = (): void => undefined;
  return {
    get isReady() {
      return client.isReady;
    },
    isCluster: false,
    address: readAddress(client),
    database: 0,
    connect() {
      if (client.isOpen && connecting === null) return Promise.resolve();
      // one at a time: version 5 ends an attempt only after its pause, and would otherwise go on with both
      connecting ??= client
        .connect()
        .then(() => {
          // version 5 resolves also if the client was destroyed meanwhile
          if (!client.isReady) throw new Error("the connection was closed");
        })
        .finally(() => {
          connecting = null;
        });
      return connecting;
    },
    takeOwnership(onStopped) {
      takeOwnership(client);
      stop = () => {
        if (client.isOpen) client.destroy();
        onStopped();
      };
      // between its own attempts a timer of the library would keep the process alive
      client.on("error", stop);
    },
    send: (args) => client.sendCommand(args),
    watchConnection({ onConnected, onDisconnected }) {
      client.on("ready", onConnected);
      client.on("reconnecting", onDisconnected);
      client.on("end", onDisconnected);
      return () => {
        client.off("ready", onConnected);
        client.off("reconnecting", onDisconnected);
        client.off("end", onDisconnected);
      };
    },
    watchErrors: (onError) => watchClientErrors(client, onError),
    resolveMaster: () => "",
    openSubscriber: (_, events) => openNodeRedisSubscriber(client, events, false),
    openCommandConnection: (_, onDisconnected) => openNodeRedisCommandConnection(client, onDisconnected),
    reconnect() {
      if (client.isOpen) stop();
    },
    disconnect() {
      if (client.isOpen) client.destroy();
    },
  };
}

function takeOwnership(client: NodeRedisLike): void {
  client.on("error", () => undefined);
  client.on("connect", () => client.unref?.());
  if (client.isOpen) client.unref?.();
}

interface SiblingConnection {
  readonly client: NodeRedisLike;
  readonly connected: Promise<unknown>;
  disconnect(): void;
}

function openSibling(client: NodeRedisLike, onDisconnected: () => void): SiblingConnection {
  const sibling = client.duplicate({ socket: { ...client.options?.socket, reconnectStrategy: false } });
  let isClosed = false;
  const disconnect = (): void => {
    isClosed = true;
    if (sibling.isOpen) sibling.destroy();
  };
  const onClosed = (): void => {
    if (isClosed) return;
    disconnect();
    onDisconnected();
  };
  takeOwnership(sibling);
  for (const event of ["error", "end", "reconnecting"]) sibling.on(event, onClosed);
  const connected = sibling.connect();
  connected.catch(onClosed);
  return { client: sibling, connected, disconnect };
}

/** @param isSharded subscribe to sharded channels, on a node of a Cluster */
function openNodeRedisSubscriber(client: NodeRedisLike, events: SubscriberEvents, isSharded: boolean): Subscriber {
  const { client: subscriber, connected, disconnect } = openSibling(client, events.onDisconnected);
  const listeners = new Map<string, (message: string) => void>();
  // the name of the event depends on the version
  for (const event of ["sharded-channel-moved", "server-sunsubscribe"])
    subscriber.on(event, () => events.onMaybeUnsubscribed());
  return {
    async subscribe(channel) {
      let listener = listeners.get(channel);
      if (listener === undefined) {
        listener = (message) => events.onMessage(channel, message);
        listeners.set(channel, listener);
      }
      await connected;
      await (isSharded ? subscriber.sSubscribe(channel, listener) : subscriber.subscribe(channel, listener));
    },
    disconnect,
  };
}

async function openNodeRedisCommandConnection(
  client: NodeRedisLike,
  onDisconnected: () => void,
): Promise<CommandConnection> {
  const { client: connection, connected, disconnect } = openSibling(client, onDisconnected);
  await connected;
  return { send: (args) => connection.sendCommand(args), disconnect };
}

/** Adapts createCluster(). The library routes commands and knows the master of each slot. */
export function adaptNodeRedisCluster(client: NodeRedisClusterLike): ClientAdapter {
  let isConnected = client.isOpen;
  const findMaster = async (routingKey: string): Promise<NodeRedisLike> => {
    const master = client.slots[toHashSlot(routingKey)]?.master;
    if (master === undefined) throw new Error("redis: no known master serves this slot");
    return client.nodeClient(master);
  };
  return {
    get isReady() {
      return client.isOpen && isConnected && client.masters.length > 0;
    },
    isCluster: true,
    address: readAddress(client),
    database: 0,
    async connect() {
      if (!client.isOpen) await client.connect();
      isConnected = true;
    },
    takeOwnership() {
      client.on("error", () => undefined);
      client.on("node-error", () => undefined);
    },
    send: (args, routingKey) => client.sendCommand(routingKey, false, args),
    watchConnection({ onConnected, onDisconnected }) {
      client.on("node-ready", onConnected);
      client.on("node-reconnecting", onDisconnected);
      client.on("node-disconnect", onDisconnected);
      return () => {
        client.off("node-ready", onConnected);
        client.off("node-reconnecting", onDisconnected);
        client.off("node-disconnect", onDisconnected);
      };
    },
    watchErrors: (onError) => watchClientErrors(client, onError),
    resolveMaster: (routingKey) => client.slots[toHashSlot(routingKey)]?.master.address ?? null,
    openSubscriber: async (routingKey, events) => openNodeRedisSubscriber(await findMaster(routingKey), events, true),
    openCommandConnection: async (routingKey, onDisconnected) =>
      openNodeRedisCommandConnection(await findMaster(routingKey), onDisconnected),
    reconnect(routingKey) {
      if (routingKey === undefined) return;
      const reopen = async (): Promise<void> => {
        const master = await findMaster(routingKey);
        master.destroy();
        await master.connect();
      };
      reopen().catch(() => undefined); // failed calls report it
    },
    disconnect() {
      if (client.isOpen) client.destroy();
    },
  };
}
