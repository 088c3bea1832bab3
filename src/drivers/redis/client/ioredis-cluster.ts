/** Redis.Cluster of ioredis and iovalkey as a link. The library routes and follows what moved; it knows whose a slot is. */

import { addressOf } from "./address.ts";
import { ioredisEars, ioredisSide, startIoredis } from "./ioredis.ts";
import type { IoredisClusterLike, IoredisLike, Link } from "./shapes.ts";
import { complaintsOf } from "./shapes.ts";
import { slotOf } from "./slots.ts";

/** @throws TypeError if it cannot be used, the way it was made */
export function ioredisClusterLink(client: IoredisClusterLike): Link {
  const { enableAutoPipelining, keyPrefix, redisOptions } = client.options ?? {};
  // up to version 5 it takes a script's digest for the key by which a call goes to its node: renewals would fail
  if (enableAutoPipelining === true) throw new TypeError("client must have enableAutoPipelining off in a Cluster");
  if (/[{}]/.test(`${keyPrefix ?? ""}${redisOptions?.keyPrefix ?? ""}`)) {
    throw new TypeError(
      "client must have no keyPrefix with braces in a Cluster: it would send our calls to another node",
    );
  }
  const masterOf = (route: string): IoredisLike => {
    const name = nameOf(client, route);
    const at = client.nodes("master").find(({ options: { host, port } }) => `${host}:${port}` === name);
    if (at === undefined) throw new Error("redis: nobody is known to have this slot");
    return at;
  };
  return {
    get isReady() {
      return client.status === "ready";
    },
    isCluster: true,
    address: addressOf(client),
    database: 0,
    start: () => startIoredis(client),
    own() {
      client.on("error", () => undefined);
      client.on("node error", () => undefined);
      client.on("+node", (made) => {
        const node = made as IoredisLike;
        node.on("connect", () => void node.stream?.unref?.());
      });
    },
    send: ([command = "", ...words]) => client.call(command, ...words),
    watch({ up, down }) {
      const lost = (): void => {
        down();
        if (client.status === "ready") up();
      };
      client.on("ready", up);
      client.on("close", down);
      client.on("-node", lost);
      return () => {
        client.off("ready", up);
        client.off("close", down);
        client.off("-node", lost);
      };
    },
    complaints: (told) => complaintsOf(client, told),
    nodeOf: (route) => nameOf(client, route),
    ears: async (route, events) => ioredisEars(masterOf(route), events, true),
    side: async (route, broken) => ioredisSide(masterOf(route), broken),
    end: () => client.disconnect(),
  };
}

/** Nodes may be reached by other names than they know of themselves. */
interface Mapping {
  natMapper?(name: string): { readonly host: string; readonly port: number };
}

function nameOf(client: IoredisClusterLike, route: string): string | null {
  const name = client.slots[slotOf(route)]?.[0];
  if (name === undefined) return null;
  const mapped = (client as Mapping).natMapper?.(name);
  return mapped === undefined ? name : `${mapped.host}:${mapped.port}`;
}
