/** node-redis as a link. */

import type { Inbox, Link, LinkEvents, NodeRedisLike } from "./shapes.ts";

export function nodeRedisLink(client: NodeRedisLike): Link {
  return {
    get isReady() {
      return client.isReady;
    },
    async start() {
      if (!client.isOpen) await client.connect();
    },
    send: (words) => client.sendCommand(words),
    watch({ up, down }) {
      client.on("ready", up);
      client.on("reconnecting", down);
      client.on("end", down);
      return () => {
        client.off("ready", up);
        client.off("reconnecting", down);
        client.off("end", down);
      };
    },
    listen: (channel, hear, events) => inbox(client, channel, hear, events),
    end() {
      if (client.isOpen) client.destroy();
    },
  };
}

function inbox(client: NodeRedisLike, channel: string, hear: (message: string) => void, events: LinkEvents): Inbox {
  const own = client.duplicate();
  // it connects again by itself; why it could not is told by the commands' connection
  const ignore = (): void => undefined;
  let subscribed = false;
  own.on("error", ignore);
  own.on("reconnecting", events.down);
  // after a break it subscribes anew before it says that it is ready
  own.on("ready", () => {
    if (subscribed) events.up();
  });
  const begin = async (): Promise<void> => {
    await own.connect();
    await own.subscribe(channel, hear);
    subscribed = true;
    events.up();
  };
  begin().catch(ignore);
  return {
    confirm: () => own.ping(),
    end() {
      own.off("reconnecting", events.down);
      if (own.isOpen) own.destroy();
    },
  };
}
