/** Detects the library of a client and adapts it. */

import { adaptGlide } from "./glide.ts";
import { adaptIoredis, adaptIoredisCluster } from "./ioredis.ts";
import { adaptNodeRedis, adaptNodeRedisCluster } from "./node-redis.ts";
import type {
  ClientAdapter,
  GlideClients,
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
  const { client: glideClient, subscriber } = client as Partial<GlideClients>;
  if (isGlide(glideClient)) {
    if (isGlide(subscriber)) return adaptGlide({ client: glideClient, subscriber });
    throw new TypeError("client must be { client, subscriber } with two clients of valkey-glide (2.5)");
  }
  if (isGlide(client)) {
    throw new TypeError("client must be { client, subscriber } for valkey-glide: the second one receives pushes");
  }
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
  throw new TypeError(
    "client must be a Redis client: ioredis, iovalkey, redis (node-redis) or { client, subscriber } of valkey-glide (2.5)",
  );
}

/** @throws TypeError if it is a client for a Cluster */
function isGlide(client: unknown): client is GlideLike {
  const { customCommand, getPubSubMessage, ssubscribe } = (client ?? {}) as Partial<Record<ClientMethod, unknown>>;
  if (typeof customCommand !== "function") return false;
  if (typeof ssubscribe !== "function") return typeof getPubSubMessage === "function";
  throw new TypeError(
    "client must be ioredis, iovalkey or redis (node-redis) for a Cluster: GlideClusterClient is not supported",
  );
}
