/** Detects the library of a client and adapts it. */

import { adaptGlide, isGlide } from "./glide.ts";
import { adaptIoredis, adaptIoredisCluster } from "./ioredis.ts";
import { adaptNodeRedis, adaptNodeRedisCluster } from "./node-redis.ts";
import type {
  ClientAdapter,
  GlideLike,
  IoredisClusterLike,
  IoredisLike,
  NodeRedisClusterLike,
  NodeRedisLike,
} from "./types.ts";

type ClientMethod =
  | "getSentinelNode"
  | keyof GlideLike
  | "ssubscribe"
  | keyof IoredisLike
  | keyof IoredisClusterLike
  | keyof NodeRedisLike
  | keyof NodeRedisClusterLike;

/** @throws TypeError if it is not a Redis client, or not a supported one */
export function adaptClient(client: unknown): ClientAdapter {
  if (typeof client !== "object" || client === null) {
    throw new TypeError(
      "client must be a Redis client (ioredis, iovalkey, redis, valkey-glide) or a function that makes one",
    );
  }
  const methods = client as Partial<Record<ClientMethod, unknown>>;
  const hasMethods = (...names: readonly ClientMethod[]): boolean =>
    names.every((name) => typeof methods[name] === "function");
  if (hasMethods("customCommand", "ssubscribe")) {
    throw new TypeError(
      "client must be ioredis, iovalkey or redis (node-redis) for a Cluster: GlideClusterClient is not supported",
    );
  }
  if (hasMethods("sendCommand", "getSentinelNode")) {
    throw new TypeError(
      "client must be ioredis or iovalkey for Sentinels: createSentinel() of node-redis is not supported",
    );
  }
  if (hasMethods("customCommand", "subscribe", "close") && isGlide(client)) return adaptGlide(client);
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
  throw new TypeError("client must be a Redis client: ioredis, iovalkey, redis (node-redis) or valkey-glide (2.5)");
}
