/**
 * The adapter for valkey-glide: a single server. It reconnects by itself without an event; pending commands fail and
 * are not sent again. So no command runs twice. But breaks are detected late, so pushes are only hints
 * (hidesDisconnects).
 *
 * Pushes need a second client with the same settings, because the callback for messages can only be set when a client
 * is created. The adapter inspects every notification of that client: one that is not a message marks a break or its
 * end.
 */

import type { ClientAdapter, ClientAddress, GlideLike, Subscriber, SubscriberEvents } from "./types.ts";

/** Decodes replies as text, whatever the decoder of the client is. */
const DECODE_AS_TEXT = { decoder: 1 };
/** Milliseconds after which subscribe() returns. It may not have subscribed then; a probe finds that out. */
const SUBSCRIBE_TIMEOUT_MS = 1_000;
/** Errors for a broken connection and for a failed reconnect. */
const CONNECTION_ERROR = /\bConnectionError\b|\bconnection error\b|\bFatal(?:Send|Receive)Error\b/i;
/** Error codes of the server that the library rewrites. */
const ERROR_CODES: Readonly<Record<string, string>> = { Moved: "MOVED", ReadOnly: "READONLY" };

/** Members that its types do not declare. Its class and its settings serve to create the second client. */
interface GlideInternals {
  readonly isClosed?: boolean;
  readonly socket?: { unref?(): unknown };
  readonly config: GlideSettings;
  readonly constructor: { createClient(settings: object): Promise<GlideLike> };
  notificationToPubSubMessageSafe(...pushed: unknown[]): unknown;
  close(why?: string): void;
}

interface GlideSettings {
  readonly addresses?: readonly { readonly host?: unknown; readonly port?: unknown }[];
  readonly useTLS?: boolean;
}

/** Whether a second client can be created from it and its notifications read. */
export function isGlide(client: object): client is GlideLike {
  const {
    config,
    constructor: createSibling,
    notificationToPubSubMessageSafe: readNotification,
  } = client as Partial<GlideInternals>;
  return (
    typeof config === "object" &&
    typeof createSibling?.createClient === "function" &&
    typeof readNotification === "function"
  );
}

export function adaptGlide(client: GlideLike): ClientAdapter {
  const listeners = new Set<{ onConnected(): void; onDisconnected(): void }>();
  let isBroken = false;
  return {
    get isReady() {
      return toInternals(client).isClosed !== true;
    },
    isCluster: false,
    hidesDisconnects: true,
    address: readAddress(toInternals(client).config),
    database: 0,
    connect: async () => undefined, // it is created connected, or connects on first use
    takeOwnership: () => void toInternals(client).socket?.unref?.(),
    async send(args) {
      try {
        const reply = await client.customCommand(args, DECODE_AS_TEXT);
        if (isBroken) {
          isBroken = false;
          for (const { onConnected } of listeners) onConnected();
        }
        return reply;
      } catch (error) {
        if (!isBroken && CONNECTION_ERROR.test(String(error))) {
          isBroken = true;
          for (const { onDisconnected } of listeners) onDisconnected();
        }
        throw restoreServerMessage(error);
      }
    },
    watchConnection(events) {
      listeners.add(events);
      return () => void listeners.delete(events);
    },
    watchErrors: () => () => undefined, // it reports errors only through failed calls
    resolveMaster: () => "",
    openSubscriber: (_, events) => openGlideSubscriber(client, events),
    openCommandConnection: () => Promise.reject(new Error("redis: option replicas does not work with valkey-glide")), // open() refuses the option replicas
    disconnect: () => client.close(),
  };
}

async function openGlideSubscriber(client: GlideLike, events: SubscriberEvents): Promise<Subscriber> {
  // messages need RESP3, the default of `protocol`
  const {
    protocol: _,
    lazyConnect: __,
    defaultDecoder: ___,
    ...settings
  } = toInternals(client).config as Record<string, unknown>;
  let isClosed = false;
  // a closed client may deliver messages for seconds
  const onMessage = (message: { readonly channel: unknown; readonly message: unknown }): void => {
    if (!isClosed) events.onMessage(String(message.channel), String(message.message));
  };
  const subscriber = await toInternals(client).constructor.createClient({
    ...settings,
    pubsubSubscriptions: { channelsAndPatterns: {}, callback: onMessage },
  });
  let pendingSubscribes = 0;
  const internals = toInternals(subscriber);
  internals.socket?.unref?.();
  const readNotification = internals.notificationToPubSubMessageSafe.bind(subscriber);
  internals.notificationToPubSubMessageSafe = (...notification) => {
    const message = readNotification(...notification);
    // during subscribe() this is its confirmation; a probe follows and verifies the subscription
    if (message === null && pendingSubscribes === 0 && !isClosed) events.onMaybeUnsubscribed();
    return message;
  };
  const close = internals.close.bind(subscriber);
  // the library closes a client that cannot recover
  internals.close = (reason) => {
    close(reason);
    if (isClosed) return;
    isClosed = true;
    events.onDisconnected();
  };
  return {
    async subscribe(channel) {
      pendingSubscribes++;
      try {
        await subscriber.subscribe([channel], SUBSCRIBE_TIMEOUT_MS);
      } finally {
        pendingSubscribes--;
      }
    },
    disconnect() {
      isClosed = true;
      close();
    },
  };
}

function restoreServerMessage(error: unknown): unknown {
  if (error instanceof Error)
    error.message = error.message.replace(/(?<= - )\w+(?=: )/, (kind) => ERROR_CODES[kind] ?? kind);
  return error;
}

function readAddress({ addresses = [], useTLS = false }: GlideSettings): ClientAddress {
  const hosts = addresses.map(({ host, port = 6379 }) => `${String(host)}:${String(port)}`);
  return { label: hosts.join(","), isTls: useTLS, isViaSentinel: false };
}

function toInternals(client: GlideLike): GlideInternals {
  return client as unknown as GlideInternals;
}
