/** The adapter for createCluster() of node-redis. The library routes commands and knows the master of each slot. */

import { toHashSlot } from "../hash-slot.ts";
import { readAddress } from "./address.ts";
import { openNodeRedisCommandConnection, openNodeRedisSubscriber } from "./node-redis.ts";
import type { ClientAdapter, NodeRedisClusterLike, NodeRedisLike } from "./types.ts";
import { watchClientErrors } from "./types.ts";

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
    disconnect() {
      if (client.isOpen) client.destroy();
    },
  };
}
