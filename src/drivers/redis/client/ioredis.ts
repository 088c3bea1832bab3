/** ioredis and iovalkey as a link. */

import type { Inbox, IoredisLike, Link, LinkEvents } from "./shapes.ts";

export function ioredisLink(client: IoredisLike): Link {
  return {
    get isReady() {
      return client.status === "ready";
    },
    start: () => start(client),
    own: () => own(client),
    send: ([command = "", ...words]) => client.call(command, ...words),
    watch({ up, down }) {
      client.on("ready", up);
      client.on("close", down);
      return () => {
        client.off("ready", up);
        client.off("close", down);
      };
    },
    listen: (channel, hear, events) => inbox(client, channel, hear, events),
    end: () => client.disconnect(),
  };
}

/** "wait": made with lazyConnect; any command would connect it, too. @throws why it could not */
async function start(client: IoredisLike): Promise<void> {
  if (client.status !== "wait") return;
  let why: unknown;
  const note = (error: unknown): void => {
    why ??= error;
  };
  client.on("error", note);
  try {
    await client.connect();
  } catch (error) {
    throw why ?? error; // what connect() throws is only that the connection is closed
  } finally {
    client.off("error", note);
  }
}

function own(client: IoredisLike): void {
  client.on("error", () => undefined);
  client.on("connect", () => void client.stream?.unref?.());
}

function inbox(client: IoredisLike, channel: string, hear: (message: string) => void, events: LinkEvents): Inbox {
  // we subscribe ourselves, to know when it is done; channels bear no prefix of the client's
  const ears = client.duplicate({ lazyConnect: true, autoResubscribe: false, keyPrefix: "", enableOfflineQueue: true });
  // it connects again by itself; why it could not is told by the commands' connection
  const ignore = (): void => undefined;
  own(ears);
  ears.on("close", events.down);
  ears.on("message", (_, message) => hear(String(message)));
  ears.on("ready", () => void ears.subscribe(channel).then(events.up, ignore));
  ears.connect().catch(ignore);
  return {
    confirm: () => ears.subscribe(channel),
    end() {
      ears.off("close", events.down);
      ears.disconnect();
    },
  };
}
