/** Detects the library of a client and adapts it. */

import { adaptIoredis, adaptIoredisCluster } from "./ioredis.ts";
import { adaptNodeRedis, adaptNodeRedisCluster } from "./node-redis.ts";
import type { ClientAdapter, IoredisClusterLike, IoredisLike, NodeRedisClusterLike, NodeRedisLike } from "./types.ts";

type ClientMethod =
  | "getSentinelNode"
  | keyof IoredisLike
  | keyof IoredisClusterLike
  | keyof NodeRedisLike
  | keyof NodeRedisClusterLike;

/** @throws TypeError if it is not a Redis client, or not a supported one */
export function adaptClient(client: unknown): ClientAdapter {
  if (typeof client !== "object" || client === null) {
    throw new TypeError("client must be a Redis client (ioredis, iovalkey, redis) or a function that makes one");
  }
  const methods = client as Partial<Record<ClientMethod, unknown>>;
  const hasMethods = (...names: readonly ClientMethod[]): boolean =>
    names.every((name) => typeof methods[name] === "function");
  if (hasMethods("sendCommand", "getSentinelNode")) {
    throw new TypeError(
      "client must be ioredis or iovalkey for Sentinels: createSentinel() of node-redis is not supported",
    );
  }
  if (methods.isCluster === true && hasMethods("call", "nodes"))
    return adaptIoredisCluster(client as IoredisClusterLike);
  if (hasMethods("sendCommand", "nodeClient") && Array.isArray(methods.masters)) {
    return adaptNodeRedisCluster(client as NodeRedisClusterLike);
  }
  if (hasMethods("call", "duplicate", "subscribe") && typeof methods.status === "string") {
    return adaptIoredis(client as IoredisLike);
  }
  if (hasMethods("sendCommand", "duplicate", "subscribe") && typeof methods.isReady === "boolean") {
    return adaptNodeRedis(client as NodeRedisLike);
  }
  throw new TypeError("client must be a Redis client: ioredis, iovalkey or redis (node-redis)");
}
