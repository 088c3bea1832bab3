/**
 * The clients of Redis as far as we use them, by their shape: nothing is imported from them and no class is asked for, so
 * any version, and any library made like them, will do.
 */

import type { ClientAddress } from "./address.ts";

interface Emitter {
  on(event: string, listener: (...details: unknown[]) => void): unknown;
  off(event: string, listener: (...details: unknown[]) => void): unknown;
}

/** ioredis 5 and 6, iovalkey: one server, or the master that Sentinels name. */
export interface IoredisLike extends Emitter {
  readonly status: string;
  readonly stream?: { unref?(): unknown } | undefined;
  /** What it selects after each connect. */
  readonly condition?: { readonly select?: number | undefined } | null | undefined;
  call(command: string, ...args: string[]): Promise<unknown>;
  duplicate(override?: object): IoredisLike;
  subscribe(channel: string): Promise<unknown>;
  ssubscribe(channel: string): Promise<unknown>;
  connect(): Promise<void>;
  disconnect(): void;
}

/** Redis.Cluster of ioredis 5 and 6 and of iovalkey. */
export interface IoredisClusterLike extends Emitter {
  readonly isCluster: true;
  readonly status: string;
  /** Of each slot its nodes as "host:port", the master first. */
  readonly slots: readonly (readonly string[] | undefined)[];
  readonly options?: {
    readonly enableAutoPipelining?: boolean;
    readonly keyPrefix?: unknown;
    readonly redisOptions?: { readonly keyPrefix?: unknown };
  };
  call(command: string, ...args: string[]): Promise<unknown>;
  nodes(
    role: "master",
  ): readonly (IoredisLike & { readonly options: { readonly host?: string; readonly port?: number } })[];
  connect(): Promise<void>;
  disconnect(): void;
}

/** node-redis 5 and 6 (the package `redis`): one server. */
export interface NodeRedisLike extends Emitter {
  readonly isOpen: boolean;
  readonly isReady: boolean;
  readonly options?: { readonly socket?: object | undefined } | undefined;
  sendCommand(args: string[]): Promise<unknown>;
  duplicate(override?: object): NodeRedisLike;
  subscribe(channel: string, listener: (message: string) => unknown): Promise<void>;
  sSubscribe(channel: string, listener: (message: string) => unknown): Promise<void>;
  unref?(): void;
  connect(): Promise<unknown>;
  destroy(): void;
}

/** createCluster() of node-redis 5 and 6. */
export interface NodeRedisClusterLike extends Emitter {
  readonly isOpen: boolean;
  readonly masters: readonly unknown[];
  readonly slots: readonly ({ readonly master: { readonly address: string } } | undefined)[];
  nodeClient(node: { readonly address: string }): NodeRedisLike | Promise<NodeRedisLike>;
  sendCommand(firstKey: string | undefined, isReadonly: boolean | undefined, args: string[]): Promise<unknown>;
  connect(): Promise<unknown>;
  destroy(): void;
}

/** GlideClient of valkey-glide 2 (tested with 2.5): one server. */
export interface GlideLike {
  customCommand(args: string[], options?: object): Promise<unknown>;
  subscribe(channels: Iterable<string>, timeoutMs: number): Promise<void>;
  close(): void;
}

/** What a client says to be wrong. */
export function watchClientErrors(client: Emitter, onError: (error: unknown) => void): () => void {
  client.on("error", onError);
  return () => void client.off("error", onError);
}

/** A client of Redis that the driver can use. */
export type RedisClient = IoredisLike | IoredisClusterLike | NodeRedisLike | NodeRedisClusterLike | GlideLike;

/** A connection comes up, or breaks. */
interface AdapterEvents {
  onConnected(): void;
  onDisconnected(): void;
}

/**
 * Whatever takes our commands: one connection, or those to all masters of a Cluster. A route is any key of ours with a
 * hash tag: in a Cluster a command goes to the master that has it; elsewhere it says nothing.
 */
export interface ClientAdapter {
  readonly isReady: boolean;
  readonly isCluster: boolean;
  /**
   * Breaks of an idle connection are not told: what is published may be of an older one than the last reply, and no count of
   * what one connection wrote can be asked for. But nothing is ever sent twice.
   */
  readonly hidesDisconnects?: true;
  readonly address: ClientAddress;
  /**
   * The database that its client means to use, if the client goes on in database 0 should the server refuse to select it; 0:
   * nothing need be asked.
   */
  readonly database: number;
  /** Begins to connect, if that has to be asked for. */
  connect(): Promise<unknown>;
  send(args: string[], routingKey: string): Promise<unknown>;
  /** Tells of every change from now on, until the function given back is called. In a Cluster: of any node's. */
  watchConnection(events: AdapterEvents): () => void;
  /** Tells of what its client says to be wrong, until the function given back is called. */
  watchErrors(onError: (error: unknown) => void): () => void;
  /** The name of the master that has this route, as far as is known; null: not known, or none. */
  resolveMaster(routingKey: string): string | null;
  /** A connection of our own beside it, to the master that has this route. */
  openSubscriber(routingKey: string, events: SubscriberEvents): Subscriber | Promise<Subscriber>;
  /** Another such connection, for commands. `onDisconnected`: it is gone; told once. */
  openCommandConnection(routingKey: string, onDisconnected: () => void): CommandConnection | Promise<CommandConnection>;
  /**
   * The client was made for us: its errors are told by the calls that fail, and it keeps no process alive by itself.
   * Called once, before connect().
   */
  takeOwnership(): void;
  /** Ends the connection at once. Only for one that is ours. */
  disconnect(): void;
}

/** What is heard by ears. */
export interface SubscriberEvents {
  onMessage(channel: string, message: string): void;
  /** The connection is gone. Told once, also when it was never there; nothing follows. */
  onDisconnected(): void;
  /** A subscription may have ended: its slot has gone to another node. */
  onMaybeUnsubscribed(): void;
}

/** A connection for what is published. It is made once: when it breaks, it is over. */
export interface Subscriber {
  /** Subscribes, or does so again; settles when that is done. In a Cluster: to a sharded channel. */
  subscribe(channel: string): Promise<unknown>;
  disconnect(): void;
}

/** A connection for commands that would hold up others. It is made once: when it breaks, it is over. */
export interface CommandConnection {
  send(args: string[]): Promise<unknown>;
  disconnect(): void;
}
