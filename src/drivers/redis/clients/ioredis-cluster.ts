/** The adapter for Redis.Cluster of ioredis and iovalkey. The library routes commands and knows the master of each slot. */

import { toHashSlot } from "../hash-slot.ts";
import { readAddress } from "./address.ts";
import { connectIoredis, openIoredisCommandConnection, openIoredisSubscriber } from "./ioredis.ts";
import type { ClientAdapter, IoredisClusterLike, IoredisLike } from "./types.ts";
import { watchClientErrors } from "./types.ts";

/** @throws TypeError if the options of the client are not supported */
export function adaptIoredisCluster(client: IoredisClusterLike): ClientAdapter {
  const { enableAutoPipelining, keyPrefix, redisOptions } = client.options ?? {};
  // up to version 5, auto-pipelining routes EVALSHA by the digest instead of a key: renewals would fail
  if (enableAutoPipelining === true) throw new TypeError("client must have enableAutoPipelining off in a Cluster");
  if (/[{}]/.test(`${keyPrefix ?? ""}${redisOptions?.keyPrefix ?? ""}`)) {
    throw new TypeError(
      "client must have no keyPrefix with braces in a Cluster: it would route calls to the wrong node",
    );
  }
  const findMaster = (routingKey: string): IoredisLike => {
    const name = resolveMasterName(client, routingKey);
    const master = client.nodes("master").find(({ options: { host, port } }) => `${host}:${port}` === name);
    if (master === undefined) throw new Error("redis: no known master serves this slot");
    return master;
  };
  return {
    get isReady() {
      return client.status === "ready";
    },
    isCluster: true,
    address: readAddress(client),
    database: 0,
    connect: () => connectIoredis(client),
    takeOwnership() {
      client.on("error", () => undefined);
      client.on("node error", () => undefined);
      client.on("+node", (added) => {
        const node = added as IoredisLike;
        node.on("connect", () => void node.stream?.unref?.());
      });
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
    openSubscriber: async (routingKey, events) => openIoredisSubscriber(findMaster(routingKey), events, true),
    openCommandConnection: async (routingKey, onDisconnected) =>
      openIoredisCommandConnection(findMaster(routingKey), onDisconnected),
    disconnect: () => client.disconnect(),
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
