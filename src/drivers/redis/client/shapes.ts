/**
 * The clients of Redis as far as we use them, by their shape: nothing is imported from them and no class is asked for, so
 * any version, and any library made like them, will do.
 */

/** ioredis 5 and 6, iovalkey. */
export interface IoredisLike {
  readonly status: string;
  readonly stream?: { unref?(): unknown } | undefined;
  call(command: string, ...words: string[]): Promise<unknown>;
  duplicate(override?: object): IoredisLike;
  subscribe(channel: string): Promise<unknown>;
  connect(): Promise<void>;
  disconnect(): void;
  on(event: string, listener: (...details: unknown[]) => void): unknown;
  off(event: string, listener: (...details: unknown[]) => void): unknown;
}

/** node-redis 5 and 6 (the package `redis`). */
export interface NodeRedisLike {
  readonly isOpen: boolean;
  readonly isReady: boolean;
  sendCommand(words: string[]): Promise<unknown>;
  duplicate(): NodeRedisLike;
  subscribe(channel: string, listener: (message: string) => unknown): Promise<void>;
  ping(): Promise<unknown>;
  unref?(): void;
  connect(): Promise<unknown>;
  destroy(): void;
  on(event: string, listener: (...details: unknown[]) => void): unknown;
  off(event: string, listener: (...details: unknown[]) => void): unknown;
}

/** A client of Redis that the driver can use. */
export type RedisClient = IoredisLike | NodeRedisLike;

/** A connection comes up, or breaks. */
export interface LinkEvents {
  up(): void;
  down(): void;
}

/** One connection for commands, whatever the library. */
export interface Link {
  readonly isReady: boolean;
  /** Begins to connect, if that has to be asked for. */
  start(): Promise<unknown>;
  send(words: string[]): Promise<unknown>;
  /** Tells of every change from now on, until the function given back is called. */
  watch(events: LinkEvents): () => void;
  /** A connection of our own beside it, for one channel. It connects, and subscribes anew after each break. */
  listen(channel: string, hear: (message: string) => void, events: LinkEvents): Inbox;
  /**
   * The client was made for us: its errors are told by the calls that fail, and it keeps no process alive by itself.
   * Called once, before start().
   */
  own(): void;
  /** Ends the connection at once. Only for one that is ours. */
  end(): void;
}

/** The connection that hears pushes. */
export interface Inbox {
  /** Settles when all that was said before the call has been heard. */
  confirm(): Promise<unknown>;
  end(): void;
}
