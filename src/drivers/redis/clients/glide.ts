/**
 * The adapter for valkey-glide: a single server. It reconnects by itself without an event; pending commands fail and
 * are not sent again. So no command runs twice. But breaks are detected late, so pushes are only hints
 * (hidesDisconnects). A push that is published while the subscriber reconnects is lost: the next recheck of the claim
 * finds the grant.
 */

import type { ClientAdapter, GlideClients, GlideLike, Subscriber, SubscriberEvents } from "./types.ts";

/** Decodes replies as text, whatever the decoder of the client is. */
const DECODE_AS_TEXT = { decoder: 1 };
/** Milliseconds after which subscribe() returns. It may not have subscribed then; a probe finds that out. */
const SUBSCRIBE_TIMEOUT_MS = 1_000;
/** Errors for a broken connection and for a failed reconnect. */
const CONNECTION_ERROR = /\bConnectionError\b|\bconnection error\b|\bFatal(?:Send|Receive)Error\b/i;
/** Error codes of the server that the library rewrites. */
const ERROR_CODES: Readonly<Record<string, string>> = { Moved: "MOVED", ReadOnly: "READONLY" };

export function adaptGlide({ client, subscriber }: GlideClients): ClientAdapter {
  const listeners = new Set<{ onConnected(): void; onDisconnected(): void }>();
  let isBroken = false;
  let receiver: SubscriberEvents | null = null;
  let isReading = false;
  const readMessages = (): void => {
    isReading = true;
    subscriber.getPubSubMessage().then(
      ({ channel, message }) => {
        receiver?.onMessage(String(channel), String(message));
        readMessages();
      },
      () => {
        isReading = false;
        receiver?.onDisconnected(); // the client was closed
      },
    );
  };
  return {
    isReady: true, // it does not say; calls fail while it is not
    isCluster: false,
    hidesDisconnects: true,
    address: { label: "", isTls: false, isViaSentinel: false },
    database: 0,
    connect: async () => undefined, // it is created connected, or connects on first use
    takeOwnership: () => undefined,
    reconnect: () => undefined, // no connection can be given up without closing the client
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
    openSubscriber(_, events) {
      receiver = events;
      if (!isReading) readMessages();
      return openGlideSubscriber(subscriber, () => {
        if (receiver === events) receiver = null;
      });
    },
    openCommandConnection: () => Promise.reject(new Error("redis: option replicas does not work with valkey-glide")), // open() refuses the option replicas
    disconnect() {
      client.close();
      subscriber.close();
    },
  };
}

/** A subscriber over the second client, which stays open. */
function openGlideSubscriber(client: GlideLike, onClosed: () => void): Subscriber {
  const channels = new Set<string>();
  return {
    subscribe(channel) {
      channels.add(channel);
      return client.subscribe([channel], SUBSCRIBE_TIMEOUT_MS);
    },
    disconnect() {
      onClosed();
      client.unsubscribe(channels, 0).catch(() => undefined); // it is closed or not connected: nothing is subscribed
    },
  };
}

function restoreServerMessage(error: unknown): unknown {
  if (error instanceof Error)
    error.message = error.message.replace(/(?<= - )\w+(?=: )/, (kind) => ERROR_CODES[kind] ?? kind);
  return error;
}
