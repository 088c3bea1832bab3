/** The adapters for ioredis and iovalkey: a single server, the master that Sentinels name, and a Cluster. */

import { toHashSlot } from "../hash-slot.ts";
import type {
  ClientAdapter,
  CommandConnection,
  IoredisClusterLike,
  IoredisLike,
  Subscriber,
  SubscriberEvents,
} from "./types.ts";
import { readAddress, watchClientErrors } from "./types.ts";

export function adaptIoredis(client: IoredisLike): ClientAdapter {
  let isOwned = false;
  return {
    get isReady() {
      return client.status === "ready";
    },
    isCluster: false,
    address: readAddress(client),
    get database() {
      return client.condition?.select ?? 0;
    },
    connect: () => connectIoredis(client, isOwned),
    takeOwnership(onStopped) {
      isOwned = true;
      takeOwnership(client);
      client.on("end", onStopped);
    },
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
    reconnect() {
      if (hasConnection(client)) disconnectNow(client);
    },
    disconnect: () => disconnectNow(client),
  };
}

/**
 * Or an attempt to open one. One that was destroyed is left already, although its event has not come: many calls may
 * time out in one turn of the event loop, and the library would add a listener and a timer for each.
 */
function hasConnection({ status, stream }: Pick<IoredisLike, "status" | "stream">): boolean {
  return ["connecting", "connect", "ready"].includes(status) && stream?.destroyed !== true;
}

/**
 * The library would wait for the end of a server that does not answer, with a timer that keeps the process alive.
 * Between two attempts it would wait for a socket that has ended, so that only the pause is ended then.
 */
function disconnectNow(client: IoredisLike): void {
  const { stream } = client;
  if (client.status === "reconnecting") clearTimeout(readPause(client));
  else client.disconnect();
  stream?.destroy?.();
}

/**
 * The status "wait" means lazyConnect: the client connects on first use. One that has ended is started again only if it
 * is ours.
 * @throws the first connection error
 */
async function connectIoredis(
  client: Pick<IoredisLike, "status" | "on" | "off" | "connect">,
  isOwned: boolean,
): Promise<void> {
  if (client.status !== "wait" && !(isOwned && client.status === "end")) return;
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
  client.on("reconnecting", () => readPause(client)?.unref());
  client.on("connect", () => void client.stream?.unref?.());
  client.stream?.unref?.();
}

/** The pause before the next attempt to connect: a private property, with this name in versions 5 and 6. */
function readPause(client: object): NodeJS.Timeout | undefined {
  return (client as { readonly reconnectTimeout?: NodeJS.Timeout | null }).reconnectTimeout ?? undefined;
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
      disconnectNow(sibling);
    },
  };
}

/** @param isSharded subscribe to sharded channels, on a node of a Cluster */
function openIoredisSubscriber(client: IoredisLike, events: SubscriberEvents, isSharded: boolean): Subscriber {
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

function openIoredisCommandConnection(client: IoredisLike, onDisconnected: () => void): CommandConnection {
  const { client: connection, disconnect } = openSibling(client, onDisconnected);
  return { send: ([command = "", ...args]) => connection.call(command, ...args), disconnect };
}

/**
 * Adapts Redis.Cluster. The library routes commands and knows the master of each slot.
 * @throws TypeError if the options of the client are not supported
 */
export function adaptIoredisCluster(client: IoredisClusterLike): ClientAdapter {
  const { enableAutoPipelining, keyPrefix, redisOptions } = client.options ?? {};
  // up to version 5, auto-pipelining routes EVALSHA by the digest instead of a key: renewals would fail
  if (enableAutoPipelining === true) throw new TypeError("client must have enableAutoPipelining off in a Cluster");
  if (/[{}]/.test(`${keyPrefix ?? ""}${redisOptions?.keyPrefix ?? ""}`)) {
    throw new TypeError(
      "client must have no keyPrefix with braces in a Cluster: it would route calls to the wrong node",
    );
  }
  const findMaster = (routingKey: string): IoredisLike | undefined => {
    const name = resolveMasterName(client, routingKey);
    return client.nodes("master").find(({ options: { host, port } }) => `${host}:${port}` === name);
  };
  const getMaster = (routingKey: string): IoredisLike => {
    const master = findMaster(routingKey);
    if (master === undefined) throw new Error("redis: no known master serves this slot");
    return master;
  };
  const disconnectAll = (): void => {
    const streams = client.nodes("master").map(({ stream }) => stream);
    client.disconnect();
    for (const stream of streams) stream?.destroy?.();
  };
  let isOwned = false;
  return {
    get isReady() {
      return client.status === "ready";
    },
    isCluster: true,
    address: readAddress(client),
    database: 0,
    connect: () => connectIoredis(client, isOwned),
    takeOwnership(onStopped) {
      isOwned = true;
      client.on("end", onStopped);
      client.on("reconnecting", () => readPause(client)?.unref());
      client.on("error", () => undefined);
      client.on("node error", () => undefined);
      client.on("+node", (added) => takeOwnershipOfNode(added as IoredisNode));
      // it may have begun to connect already
      client.nodes("all").forEach(takeOwnershipOfNode);
    },
    send: ([command = "", ...args]) => client.call(command, ...args),
    watchConnection({ onConnected, onDisconnected }) {
      const onNodeRemoved = (): void => {
        onDisconnected();
        if (client.status === "ready") onConnected();
      };
      client.on("ready", onConnected);
      client.on("close", onDisconnected);
      client.on("-node", onNodeRemoved);
      return () => {
        client.off("ready", onConnected);
        client.off("close", onDisconnected);
        client.off("-node", onNodeRemoved);
      };
    },
    watchErrors: (onError) => watchClientErrors(client, onError),
    resolveMaster: (routingKey) => resolveMasterName(client, routingKey),
    openSubscriber: async (routingKey, events) => openIoredisSubscriber(getMaster(routingKey), events, true),
    openCommandConnection: async (routingKey, onDisconnected) =>
      openIoredisCommandConnection(getMaster(routingKey), onDisconnected),
    reconnect(routingKey) {
      // the other nodes may answer; a node without a connection is looked up again
      const master = routingKey === undefined ? undefined : findMaster(routingKey);
      if (master !== undefined && hasConnection(master)) disconnectNow(master);
      if (routingKey === undefined && hasConnection(client)) disconnectAll();
    },
    disconnect: disconnectAll,
  };
}

/** A node of a Cluster. */
interface IoredisNode extends IoredisLike {
  asking?(): Promise<unknown>;
}

function takeOwnershipOfNode(node: IoredisNode): void {
  node.on("connect", () => void node.stream?.unref?.());
  node.stream?.unref?.();
  ignoreFailedAsking(node);
}

/**
 * While a slot is moved the library sends ASKING before a command, and drops its result: if the connection breaks
 * meanwhile, the unhandled rejection would end the process. The command fails, too, and is reported.
 */
function ignoreFailedAsking(node: IoredisNode): void {
  const asking = node.asking?.bind(node);
  if (asking === undefined) return;
  node.asking = () => {
    const answered = asking();
    answered.catch(() => undefined);
    return answered;
  };
}

/** natMapper maps the address that a node announces to the one that reaches it. */
interface NatMapping {
  natMapper?(name: string): { readonly host: string; readonly port: number };
}

function resolveMasterName(client: IoredisClusterLike, routingKey: string): string | null {
  const name = client.slots[toHashSlot(routingKey)]?.[0];
  if (name === undefined) return null;
  const mapped = (client as NatMapping).natMapper?.(name);
  return mapped === undefined ? name : `${mapped.host}:${mapped.port}`;
}
