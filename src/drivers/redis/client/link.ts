/** Which library a client is of. */

import { glideLink, isGlide } from "./glide.ts";
import { ioredisLink } from "./ioredis.ts";
import { ioredisClusterLink } from "./ioredis-cluster.ts";
import { nodeRedisLink } from "./node-redis.ts";
import { nodeRedisClusterLink } from "./node-redis-cluster.ts";
import type {
  GlideLike,
  IoredisClusterLike,
  IoredisLike,
  Link,
  NodeRedisClusterLike,
  NodeRedisLike,
} from "./shapes.ts";

type Method =
  | "getSentinelNode"
  | keyof GlideLike
  | "ssubscribe"
  | keyof IoredisLike
  | keyof IoredisClusterLike
  | keyof NodeRedisLike
  | keyof NodeRedisClusterLike;

/** @throws TypeError if it is no client of Redis, or of a kind that is not supported */
export function linkOf(client: unknown): Link {
  if (typeof client !== "object" || client === null) {
    throw new TypeError(
      "client must be a Redis client (ioredis, iovalkey, redis, valkey-glide) or a function that makes one",
    );
  }
  const of = client as Partial<Record<Method, unknown>>;
  const has = (...names: readonly Method[]): boolean => names.every((name) => typeof of[name] === "function");
  if (has("customCommand", "ssubscribe")) {
    throw new TypeError(
      "client must be ioredis, iovalkey or redis (node-redis) for a Cluster: GlideClusterClient is not taken",
    );
  }
  if (has("sendCommand", "getSentinelNode")) {
    throw new TypeError(
      "client must be ioredis or iovalkey for Sentinels: createSentinel() of node-redis is not taken",
    );
  }
  if (has("customCommand", "subscribe", "close") && isGlide(client)) return glideLink(client);
  if (of.isCluster === true && has("call", "nodes")) return ioredisClusterLink(client as IoredisClusterLike);
  if (has("sendCommand", "nodeClient") && Array.isArray(of.masters)) {
    return nodeRedisClusterLink(client as NodeRedisClusterLike);
  }
  if (has("call", "duplicate", "subscribe") && typeof of.status === "string") {
    return ioredisLink(client as IoredisLike);
  }
  if (has("sendCommand", "duplicate", "subscribe") && typeof of.isReady === "boolean") {
    return nodeRedisLink(client as NodeRedisLike);
  }
  throw new TypeError(
    "client must be a Redis client of a known shape: ioredis, iovalkey, redis (node-redis) or valkey-glide (2.5)",
  );
}
