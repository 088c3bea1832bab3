/** The connection to NATS, and the bucket on it. The libraries are loaded only here. */

import { StoreRefusedError } from "../../errors.ts";
import { createMissingError, nullIfMissing } from "../missing-library.ts";

/** How to reach NATS. */
export interface NatsConnectionOptions {
  /** A connection of @nats-io/transport-node; it stays open at close(). Default: one that is made from the other options. */
  readonly connection?: NatsConnectionLike;
  /** "host:4222" of each server that may be asked first. Default: 127.0.0.1:4222. */
  readonly servers?: readonly string[];
  readonly user?: string;
  readonly password?: string;
  /** In the place of user and password. */
  readonly token?: string;
}

/** The part of a connection that is used here. */
export interface NatsConnectionLike {
  status(): AsyncIterable<{ readonly type: string }>;
  isClosed(): boolean;
  close(): Promise<void>;
}

/** The part of a bucket that is used here. */
export interface KvLike {
  get(
    key: string,
  ): Promise<{ readonly value: Uint8Array; readonly revision: number; readonly operation: string } | null>;
  create(key: string, value: Uint8Array): Promise<number>;
  update(key: string, value: Uint8Array, revision: number): Promise<number>;
  watch(options: object): Promise<AsyncIterable<unknown> & { stop(): void }>;
  status(): Promise<{ readonly streamInfo: { readonly config: object } }>;
}

export interface OpenBucket {
  readonly connection: NatsConnectionLike;
  readonly kv: KvLike;
}

/** @throws StoreRefusedError if a library is missing, or the connection that was passed in is closed */
export async function openBucket(bucket: string, options: NatsConnectionOptions): Promise<OpenBucket> {
  const { Kvm } = await importKv();
  const connection = options.connection ?? (await connect(options));
  if (options.connection?.isClosed()) throw new StoreRefusedError("nats: the connection that was passed in is closed");
  // not a copy near by, which may be older than a write that was answered
  const kv = await new Kvm(connection).open(bucket, { allow_direct: false });
  unrefWatches(kv);
  return { connection, kv };
}

/** As long as a call, after which nothing of the attempt keeps the process alive. */
const CONNECT_MS = 2_000;

/**
 * Connects once. The library would connect again with timers that keep the process alive, as would its pings: here the next call
 * does it, and one without an answer shows that the connection is dead.
 */
async function connect(options: NatsConnectionOptions): Promise<NatsConnectionLike> {
  const { servers = ["127.0.0.1:4222"], user, password, token } = options;
  const transport = await importTransport();
  const connection = await transport.connect({
    servers: [...servers],
    ...(user !== undefined && { user }),
    ...(password !== undefined && { pass: password }),
    ...(token !== undefined && { token }),
    name: "holdfast",
    reconnect: false,
    timeout: CONNECT_MS,
  });
  connection.protocol?.heartbeats?.cancel?.();
  connection.protocol?.transport?.socket?.unref?.();
  return connection;
}

/** Its inner parts, which another version may not have. */
interface OwnConnection extends NatsConnectionLike {
  readonly protocol?: {
    readonly heartbeats?: { cancel?(): void };
    readonly transport?: { readonly socket?: { unref?(): void } };
  };
}

/** By a timer the library finds that a watch has ended at the server: it would keep the process alive. */
function unrefWatches(kv: OwnKv): void {
  const { consumers } = kv.js ?? {};
  const getPushConsumer = consumers?.getPushConsumer?.bind(consumers);
  if (consumers === undefined || getPushConsumer === undefined) return;
  consumers.getPushConsumer = async (...names) => {
    const consumer = await getPushConsumer(...names);
    const consume = consumer.consume.bind(consumer);
    consumer.consume = async (...options) => {
      const messages = await consume(...options);
      messages.monitor?.timer?.unref?.();
      return messages;
    };
    return consumer;
  };
}

/** Its inner parts, too. They belong to this bucket alone. */
interface OwnKv extends KvLike {
  readonly js?: { readonly consumers?: { getPushConsumer?(...names: readonly unknown[]): Promise<PushConsumer> } };
}

interface PushConsumer {
  consume(...options: readonly unknown[]): Promise<{ readonly monitor?: { readonly timer?: { unref?(): void } } }>;
}

interface TransportModule {
  connect(options: object): Promise<OwnConnection>;
}

interface KvModule {
  readonly Kvm: new (connection: NatsConnectionLike) => { open(bucket: string, options: object): Promise<OwnKv> };
}

async function importTransport(): Promise<TransportModule> {
  try {
    return (await import("@nats-io/transport-node" as string)) as TransportModule;
  } catch (error) {
    nullIfMissing("@nats-io/transport-node", error);
    throw createMissingError("locks in NATS", ["@nats-io/transport-node"]);
  }
}

async function importKv(): Promise<KvModule> {
  try {
    return (await import("@nats-io/kv" as string)) as KvModule;
  } catch (error) {
    nullIfMissing("@nats-io/kv", error);
    throw createMissingError("locks in NATS", ["@nats-io/kv"]);
  }
}
