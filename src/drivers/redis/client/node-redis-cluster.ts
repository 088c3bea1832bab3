/** createCluster() of node-redis as a link. The library routes and follows what moved; it knows whose a slot is. */

import { addressOf } from "./address.ts";
import { nodeRedisEars, nodeRedisSide } from "./node-redis.ts";
import type { Link, NodeRedisClusterLike, NodeRedisLike } from "./shapes.ts";
import { complaintsOf } from "./shapes.ts";
import { slotOf } from "./slots.ts";

export function nodeRedisClusterLink(client: NodeRedisClusterLike): Link {
  let isConnected = client.isOpen;
  const masterOf = async (route: string): Promise<NodeRedisLike> => {
    const master = client.slots[slotOf(route)]?.master;
    if (master === undefined) throw new Error("redis: nobody is known to have this slot");
    return client.nodeClient(master);
  };
  return {
    get isReady() {
      return client.isOpen && isConnected && client.masters.length > 0;
    },
    isCluster: true,
    address: addressOf(client),
    database: 0,
    async start() {
      if (!client.isOpen) await client.connect();
      isConnected = true;
    },
    own() {
      client.on("error", () => undefined);
      client.on("node-error", () => undefined);
    },
    send: (words, route) => client.sendCommand(route, false, words),
    watch({ up, down }) {
      client.on("node-ready", up);
      client.on("node-reconnecting", down);
      client.on("node-disconnect", down);
      return () => {
        client.off("node-ready", up);
        client.off("node-reconnecting", down);
        client.off("node-disconnect", down);
      };
    },
    complaints: (told) => complaintsOf(client, told),
    nodeOf: (route) => client.slots[slotOf(route)]?.master.address ?? null,
    ears: async (route, events) => nodeRedisEars(await masterOf(route), events, true),
    side: async (route, broken) => nodeRedisSide(await masterOf(route), broken),
    end() {
      if (client.isOpen) client.destroy();
    },
  };
}
