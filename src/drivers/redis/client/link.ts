/** Which library a client is of. */

import { ioredisLink } from "./ioredis.ts";
import { nodeRedisLink } from "./node-redis.ts";
import type { IoredisLike, Link, NodeRedisLike } from "./shapes.ts";

/** @throws TypeError if it is no client of Redis, or of a kind that is not supported */
export function linkOf(client: unknown): Link {
  const of = client as Partial<IoredisLike & NodeRedisLike & { isCluster: boolean; masters: unknown }> | null;
  const has = (name: keyof IoredisLike | keyof NodeRedisLike): boolean => typeof of?.[name] === "function";
  if (typeof client !== "object" || of === null) {
    throw new TypeError("client must be a Redis client (ioredis, iovalkey, redis) or a function that makes one");
  }
  if (of.isCluster === true || of.masters !== undefined) {
    throw new TypeError("client must be that of a single Redis server: Cluster is not supported yet");
  }
  if (has("call") && has("duplicate") && has("subscribe") && typeof of.status === "string") {
    return ioredisLink(client as IoredisLike);
  }
  if (has("sendCommand") && has("duplicate") && has("subscribe") && typeof of.isReady === "boolean") {
    return nodeRedisLink(client as NodeRedisLike);
  }
  throw new TypeError("client must be a Redis client of a known shape: ioredis, iovalkey or redis (node-redis)");
}
