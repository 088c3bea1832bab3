/** node-redis as a link: one server. */

import type { Ears, EarsEvents, Link, NodeRedisLike } from "./shapes.ts";

export function nodeRedisLink(client: NodeRedisLike): Link {
  return {
    get isReady() {
      return client.isReady;
    },
    isCluster: false,
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
    nodeOf: () => "",
    ears: (_, events) => nodeRedisEars(client, events, false),
    end() {
      if (client.isOpen) client.destroy();
    },
  };
}

function own(client: NodeRedisLike): void {
  client.on("error", () => undefined);
  client.on("connect", () => client.unref?.());
}

/** @param isSharded for sharded channels, of a node of a Cluster */
export function nodeRedisEars(client: NodeRedisLike, events: EarsEvents, isSharded: boolean): Ears {
  const ears = client.duplicate({ socket: { ...client.options?.socket, reconnectStrategy: false } });
  const listeners = new Map<string, (message: string) => void>();
  let isOver = false;
  const end = (): void => {
    isOver = true;
    if (ears.isOpen) ears.destroy();
  };
  const over = (): void => {
    if (isOver) return;
    end();
    events.broken();
  };
  own(ears);
  for (const event of ["error", "end", "reconnecting"]) ears.on(event, over);
  // by the names that one version and another have for it
  for (const event of ["sharded-channel-moved", "server-sunsubscribe"]) ears.on(event, () => events.unsettled());
  const connected = ears.connect();
  connected.catch(over);
  return {
    async subscribe(channel) {
      let listener = listeners.get(channel);
      if (listener === undefined) {
        listener = (message) => events.heard(channel, message);
        listeners.set(channel, listener);
      }
      await connected;
      await (isSharded ? ears.sSubscribe(channel, listener) : ears.subscribe(channel, listener));
    },
    end,
  };
}
