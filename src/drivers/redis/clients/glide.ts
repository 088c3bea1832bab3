/**
 * valkey-glide as a link: one server. It connects again by itself and says so to nobody; what was under way then fails, and is
 * not sent again. So a reply is the first and only one; but who learns of a break late takes no push at its word (hidesDisconnects).
 *
 * What we hear comes over another client of the same making: a callback for messages can only be given with the settings. Of
 * that one, being ours, all that is pushed is looked at: what is no message is a break, or the end of one.
 */

import type { ClientAddress } from "./address.ts";
import type { ClientAdapter, GlideLike, Subscriber, SubscriberEvents } from "./types.ts";

/** Replies are texts, whatever the client was set to. */
const DECODE_AS_TEXT = { decoder: 1 };
/** Milliseconds after which it says that it subscribed, though it may not have: whether it did is found out by a message. */
const SUBSCRIBE_TIMEOUT_MS = 1_000;
/** How it says that the connection broke, or could not be made again. */
const CONNECTION_ERROR = /\bConnectionError\b|\bconnection error\b|\bFatal(?:Send|Receive)Error\b/i;
/** What it makes of the word a server begins an error with; the rest it leaves. */
const ERROR_CODES: Readonly<Record<string, string>> = { Moved: "MOVED", ReadOnly: "READONLY" };

/** What of it is ours to use though its types do not tell: by its class and its settings another like it is made. */
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

/** Can another be made like it, and heard? */
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
    connect: async () => undefined, // its maker gives it connected, or it connects when it is used
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
    watchErrors: () => () => undefined, // it has no other way to say anything than by the calls that fail
    resolveMaster: () => "",
    openSubscriber: (_, events) => openGlideSubscriber(client, events),
    openCommandConnection: () => Promise.reject(new Error("redis: option replicas does not work with valkey-glide")), // refused when it opens
    disconnect: () => client.close(),
  };
}

async function openGlideSubscriber(client: GlideLike, events: SubscriberEvents): Promise<Subscriber> {
  // messages need RESP3, its default
  const {
    protocol: _,
    lazyConnect: __,
    defaultDecoder: ___,
    ...settings
  } = toInternals(client).config as Record<string, unknown>;
  let isClosed = false;
  // what was ended may go on for seconds
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
    // while we subscribe it is the word for that; whoever subscribes sees afterwards whether he hears
    if (message === null && pendingSubscribes === 0 && !isClosed) events.onMaybeUnsubscribed();
    return message;
  };
  const close = internals.close.bind(subscriber);
  // it closes itself when it is beyond help
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
