/**
 * The parts of Redis client libraries that the driver uses, as structural types. Nothing is imported from the libraries
 * and no class is checked, so any version and any compatible library works.
 */

interface Emitter {
  on(event: string, listener: (...details: unknown[]) => void): unknown;
  off(event: string, listener: (...details: unknown[]) => void): unknown;
}

/** ioredis 5 and 6, iovalkey: one server, or the master that Sentinels name. */
export interface IoredisLike extends Emitter {
  readonly status: string;
  readonly stream?: { unref?(): unknown; destroy?(): unknown; readonly destroyed?: boolean } | undefined;
  /** The database that it selects after each connect. */
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
  /** The nodes of each slot as "host:port", the master first. */
  readonly slots: readonly (readonly string[] | undefined)[];
  readonly options?: {
    readonly enableAutoPipelining?: boolean;
    readonly keyPrefix?: unknown;
    readonly redisOptions?: { readonly keyPrefix?: unknown };
  };
  call(command: string, ...args: string[]): Promise<unknown>;
  nodes(
    role: "master" | "all",
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

/** Watches the error events of a client. Returns the function that stops it. */
export function watchClientErrors(client: Emitter, onError: (error: unknown) => void): () => void {
  client.on("error", onError);
  return () => void client.off("error", onError);
}

/** A client of Redis that the driver can use. */
export type RedisClient = IoredisLike | IoredisClusterLike | NodeRedisLike | NodeRedisClusterLike;

/** Reports that a connection is ready or broken. */
interface AdapterEvents {
  onConnected(): void;
  onDisconnected(): void;
}

/**
 * Sends commands over a client of the user: to one server, or to all masters of a Cluster. `routingKey` is any key with
 * a hash tag: in a Cluster the command goes to the master of its slot; a single server ignores it.
 */
export interface ClientAdapter {
  readonly isReady: boolean;
  readonly isCluster: boolean;
  readonly address: ClientAddress;
  /**
   * The database of a client that would continue in database 0 if the server refused SELECT: the driver must check it.
   * 0: no check is needed.
   */
  readonly database: number;
  /** Starts to connect if the client does not do so by itself. */
  connect(): Promise<unknown>;
  send(args: string[], routingKey: string): Promise<unknown>;
  /** Reports every change, in a Cluster of any node, until the returned function is called. */
  watchConnection(events: AdapterEvents): () => void;
  /** Reports the errors of the client until the returned function is called. */
  watchErrors(onError: (error: unknown) => void): () => void;
  /** The name of the master for this routing key; null: unknown or none. */
  resolveMaster(routingKey: string): string | null;
  /** Opens an additional connection for pushes, to the master for this routing key. */
  openSubscriber(routingKey: string, events: SubscriberEvents): Subscriber | Promise<Subscriber>;
  /** Opens an additional connection for commands. `onDisconnected` is called once, when it breaks. */
  openCommandConnection(routingKey: string, onDisconnected: () => void): CommandConnection | Promise<CommandConnection>;
  /**
   * Prepares a client that the driver created: error events are ignored, because failed calls report the errors, and
   * neither its sockets nor its pauses between attempts keep the process alive. Called once, before connect().
   * @param onStopped the client has stopped trying to connect, and connect() starts it again
   */
  takeOwnership(onStopped: () => void): void;
  /**
   * Gives up the connection to the master for this routing key, or every attempt to connect, so that a new one is
   * opened: by the client, or by connect() after onStopped. Does nothing between attempts. Only for a client that the
   * driver created.
   */
  reconnect(routingKey?: string): void;
  /** Disconnects at once; connect() starts it again. Only for a client that the driver created. */
  disconnect(): void;
}

/** Events of a subscriber. */
export interface SubscriberEvents {
  onMessage(channel: string, message: string): void;
  /** The connection broke or could not be opened. Called once; no event follows. */
  onDisconnected(): void;
  /** A subscription may have ended because its slot moved to another node. */
  onMaybeUnsubscribed(): void;
}

/** A connection for pushes. It does not reconnect. */
export interface Subscriber {
  /** Subscribes, or subscribes again; in a Cluster to a sharded channel. */
  subscribe(channel: string): Promise<unknown>;
  disconnect(): void;
}

/** A connection for commands that would block others. It does not reconnect. */
export interface CommandConnection {
  send(args: string[]): Promise<unknown>;
  disconnect(): void;
}

/** The address of a client. */
export interface ClientAddress {
  /** "host:port", a socket path or a list of hosts; "": unknown. */
  readonly label: string;
  readonly isTls: boolean;
  /** Whether Sentinels name the master. After a fail-over they name another one. */
  readonly isViaSentinel: boolean;
}

interface HostSettings {
  readonly host?: unknown;
  readonly port?: unknown;
  readonly path?: unknown;
  readonly tls?: unknown;
}

/** The options of ioredis and node-redis that are read, for single servers and Clusters. */
interface ConfiguredClient {
  readonly options?: HostSettings & {
    readonly socket?: HostSettings;
    readonly name?: unknown;
    readonly sentinels?: readonly HostSettings[] | null;
    readonly redisOptions?: HostSettings;
  };
  readonly startupNodes?: readonly unknown[];
}

/** Reads the address of a client from its options, for messages. It does not read user names or passwords. */
export function readAddress(client: object): ClientAddress {
  const { options = {}, startupNodes } = client as ConfiguredClient;
  const { socket = {}, sentinels, redisOptions = {} } = options;
  const isTls = [options.tls, socket.tls, redisOptions.tls].some(
    (tls) => tls !== undefined && tls !== false && tls !== null,
  );
  const isViaSentinel = Array.isArray(sentinels);
  if (isViaSentinel)
    return { label: `${String(options.name)} through Sentinels at ${formatHosts(sentinels)}`, isTls, isViaSentinel };
  const label =
    startupNodes === undefined ? formatHosts([options]) || formatHosts([socket]) : formatHosts(startupNodes);
  return { label, isTls, isViaSentinel };
}

function formatHosts(hosts: readonly unknown[]): string {
  return hosts
    .map((entry) => {
      const { host, port, path } = ((typeof entry === "object" ? entry : null) ?? {}) as HostSettings;
      if (typeof path === "string") return path;
      return typeof host === "string" && typeof port === "number" ? `${host}:${port}` : "";
    })
    .filter((name) => name !== "")
    .join(",");
}
