/** ioredis and iovalkey as a link. */

import type { Inbox, IoredisLike, Link, LinkEvents } from "./shapes.ts";

export function ioredisLink(client: IoredisLike): Link {
  return {
    get isReady() {
      return client.status === "ready";
    },
    async start() {
      // "wait": made with lazyConnect; any command would do the same
      if (client.status === "wait") await client.connect();
    },
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

function inbox(client: IoredisLike, channel: string, hear: (message: string) => void, events: LinkEvents): Inbox {
  // we subscribe ourselves, to know when it is done; channels bear no prefix of the client's
  const own = client.duplicate({ lazyConnect: true, autoResubscribe: false, keyPrefix: "", enableOfflineQueue: true });
  // it connects again by itself; why it could not is told by the commands' connection
  const ignore = (): void => undefined;
  own.on("error", ignore);
  own.on("close", events.down);
  own.on("message", (_, message) => hear(String(message)));
  own.on("ready", () => void own.subscribe(channel).then(events.up, ignore));
  own.connect().catch(ignore);
  return {
    confirm: () => own.subscribe(channel),
    end() {
      own.off("close", events.down);
      own.disconnect();
    },
  };
}
