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
    own: () => own(client),
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

function own(client: NodeRedisLike): void {
  client.on("error", () => undefined);
  client.on("connect", () => client.unref?.());
}

function inbox(client: NodeRedisLike, channel: string, hear: (message: string) => void, events: LinkEvents): Inbox {
  const ears = client.duplicate();
  // it connects again by itself; why it could not is told by the commands' connection
  const ignore = (): void => undefined;
  let subscribed = false;
  own(ears);
  ears.on("reconnecting", events.down);
  // after a break it subscribes anew before it says that it is ready
  ears.on("ready", () => {
    if (subscribed) events.up();
  });
  const begin = async (): Promise<void> => {
    await ears.connect();
    await ears.subscribe(channel, hear);
    subscribed = true;
    events.up();
  };
  begin().catch(ignore);
  return {
    confirm: () => ears.ping(),
    end() {
      ears.off("reconnecting", events.down);
      if (ears.isOpen) ears.destroy();
    },
  };
}
