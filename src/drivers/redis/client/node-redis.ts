/** node-redis as a link: one server. */

import { addressOf } from "./address.ts";
import type { Ears, EarsEvents, Link, NodeRedisLike, Side } from "./shapes.ts";
import { complaintsOf } from "./shapes.ts";

export function nodeRedisLink(client: NodeRedisLike): Link {
  return {
    get isReady() {
      return client.isReady;
    },
    isCluster: false,
    address: addressOf(client),
    database: 0,
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
    complaints: (told) => complaintsOf(client, told),
    nodeOf: () => "",
    ears: (_, events) => nodeRedisEars(client, events, false),
    side: (_, broken) => nodeRedisSide(client, broken),
    end() {
      if (client.isOpen) client.destroy();
    },
  };
}

function own(client: NodeRedisLike): void {
  client.on("error", () => undefined);
  client.on("connect", () => client.unref?.());
  if (client.isOpen) client.unref?.();
}

interface Beside {
  readonly made: NodeRedisLike;
  readonly connected: Promise<unknown>;
  end(): void;
}

function beside(client: NodeRedisLike, broken: () => void): Beside {
  const made = client.duplicate({ socket: { ...client.options?.socket, reconnectStrategy: false } });
  let isOver = false;
  const end = (): void => {
    isOver = true;
    if (made.isOpen) made.destroy();
  };
  const over = (): void => {
    if (isOver) return;
    end();
    broken();
  };
  own(made);
  for (const event of ["error", "end", "reconnecting"]) made.on(event, over);
  const connected = made.connect();
  connected.catch(over);
  return { made, connected, end };
}

/** @param isSharded for sharded channels, of a node of a Cluster */
export function nodeRedisEars(client: NodeRedisLike, events: EarsEvents, isSharded: boolean): Ears {
  const { made: ears, connected, end } = beside(client, events.broken);
  const listeners = new Map<string, (message: string) => void>();
  // by the names that one version and another have for it
  for (const event of ["sharded-channel-moved", "server-sunsubscribe"]) ears.on(event, () => events.unsettled());
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

export async function nodeRedisSide(client: NodeRedisLike, broken: () => void): Promise<Side> {
  const { made, connected, end } = beside(client, broken);
  await connected;
  return { send: (words) => made.sendCommand(words), end };
}
