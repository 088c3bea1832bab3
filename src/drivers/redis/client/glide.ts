/**
 * valkey-glide as a link: one server. It connects again by itself and says so to nobody; what was under way then fails, and is
 * not sent again. So a reply is the first and only one; but who learns of a break late takes no push at its word (isSilent).
 *
 * What we hear comes over another client of the same making: a callback for messages can only be given with the settings. Of
 * that one, being ours, all that is pushed is looked at: what is no message is a break, or the end of one.
 */

import type { Address } from "./address.ts";
import type { Ears, EarsEvents, GlideLike, Link } from "./shapes.ts";

/** Replies are texts, whatever the client was set to. */
const TEXTS = { decoder: 1 };
/** Milliseconds after which it says that it subscribed, though it may not have: whether it did is found out by a message. */
const SUBSCRIBE_MS = 1_000;
/** How it says that the connection broke, or could not be made again. */
const BREAK = /\bConnectionError\b|\bconnection error\b|\bFatal(?:Send|Receive)Error\b/i;
/** What it makes of the word a server begins an error with; the rest it leaves. */
const KINDS: Readonly<Record<string, string>> = { Moved: "MOVED", ReadOnly: "READONLY" };

/** What of it is ours to use though its types do not tell: by its class and its settings another like it is made. */
interface Inside {
  readonly isClosed?: boolean;
  readonly socket?: { unref?(): unknown };
  readonly config: Settings;
  readonly constructor: { createClient(settings: object): Promise<GlideLike> };
  notificationToPubSubMessageSafe(...pushed: unknown[]): unknown;
  close(why?: string): void;
}

interface Settings {
  readonly addresses?: readonly { readonly host?: unknown; readonly port?: unknown }[];
  readonly useTLS?: boolean;
}

/** Can another be made like it, and heard? */
export function isGlide(client: object): client is GlideLike {
  const { config, constructor: made, notificationToPubSubMessageSafe: read } = client as Partial<Inside>;
  return typeof config === "object" && typeof made?.createClient === "function" && typeof read === "function";
}

export function glideLink(client: GlideLike): Link {
  const watched = new Set<{ up(): void; down(): void }>();
  let isBroken = false;
  return {
    get isReady() {
      return insideOf(client).isClosed !== true;
    },
    isCluster: false,
    isSilent: true,
    address: addressOf(insideOf(client).config),
    database: 0,
    start: async () => undefined, // its maker gives it connected, or it connects when it is used
    own: () => void insideOf(client).socket?.unref?.(),
    async send(words) {
      try {
        const reply = await client.customCommand(words, TEXTS);
        if (isBroken) {
          isBroken = false;
          for (const { up } of watched) up();
        }
        return reply;
      } catch (error) {
        if (!isBroken && BREAK.test(String(error))) {
          isBroken = true;
          for (const { down } of watched) down();
        }
        throw inServersWords(error);
      }
    },
    watch(events) {
      watched.add(events);
      return () => void watched.delete(events);
    },
    complaints: () => () => undefined, // it has no other way to say anything than by the calls that fail
    nodeOf: () => "",
    ears: (_, events) => glideEars(client, events),
    side: () => Promise.reject(new Error("redis: valkey-glide cannot ask about replicas")), // refused when it opens
    end: () => client.close(),
  };
}

async function glideEars(client: GlideLike, events: EarsEvents): Promise<Ears> {
  // messages need RESP3, its default
  const {
    protocol: _,
    lazyConnect: __,
    defaultDecoder: ___,
    ...settings
  } = insideOf(client).config as Record<string, unknown>;
  let isOver = false;
  // what was ended may go on for seconds
  const heard = (said: { readonly channel: unknown; readonly message: unknown }): void => {
    if (!isOver) events.heard(String(said.channel), String(said.message));
  };
  const ears = await insideOf(client).constructor.createClient({
    ...settings,
    pubsubSubscriptions: { channelsAndPatterns: {}, callback: heard },
  });
  let subscribing = 0;
  const inside = insideOf(ears);
  inside.socket?.unref?.();
  const read = inside.notificationToPubSubMessageSafe.bind(ears);
  inside.notificationToPubSubMessageSafe = (...pushed) => {
    const message = read(...pushed);
    // while we subscribe it is the word for that; whoever subscribes sees afterwards whether he hears
    if (message === null && subscribing === 0 && !isOver) events.unsettled();
    return message;
  };
  const close = inside.close.bind(ears);
  // it closes itself when it is beyond help
  inside.close = (why) => {
    close(why);
    if (isOver) return;
    isOver = true;
    events.broken();
  };
  return {
    async subscribe(channel) {
      subscribing++;
      try {
        await ears.subscribe([channel], SUBSCRIBE_MS);
      } finally {
        subscribing--;
      }
    },
    end() {
      isOver = true;
      close();
    },
  };
}

function inServersWords(error: unknown): unknown {
  if (error instanceof Error) error.message = error.message.replace(/(?<= - )\w+(?=: )/, (kind) => KINDS[kind] ?? kind);
  return error;
}

function addressOf({ addresses = [], useTLS = false }: Settings): Address {
  const places = addresses.map(({ host, port = 6379 }) => `${String(host)}:${String(port)}`);
  return { place: places.join(","), isTls: useTLS, isNamed: false };
}

function insideOf(client: GlideLike): Inside {
  return client as unknown as Inside;
}
