/** One connection between a client and a server: two streams of lines that keep their order. */

import type { Dial, WireEvents } from "../../src/drivers/server/wire.ts";
import type { Link } from "../../src/server/link.ts";
import type { Machine } from "./machine.ts";
import type { Network } from "./network.ts";
import type { ServerHost } from "./server-host.ts";

/** A machine that cannot be reached is tried again after this time, then after twice as long, and so on. */
const RETRANSMIT_MS = 25;
const MOST_WAIT_MS = 1_000;

export class Pipe {
  readonly client: Machine;
  readonly #network: Network;
  readonly #events: WireEvents;
  #server: Machine | null = null;
  #link: Link | null = null;
  #clientOpen = true;
  #serverOpen = false;
  readonly #toServer: (() => void)[] = [];
  readonly #toClient: (() => void)[] = [];
  #serverAt = 0;
  #clientAt = 0;

  constructor(client: Machine, network: Network, events: WireEvents) {
    this.client = client;
    this.#network = network;
    this.#events = events;
  }

  /** The server has taken the connection. */
  accepted(server: Machine, link: Link): void {
    this.#server = server;
    this.#link = link;
    this.#serverOpen = true;
    for (let count = this.#toServer.length; count > 0; count--) this.#arriveAtServer();
  }

  /** Nobody listens. */
  refused(): void {
    this.#end("nobody listens");
  }

  /** What the client does with its end. */
  get wire(): ReturnType<Dial> {
    return {
      write: (text) => {
        if (!this.#clientOpen) return;
        this.#toServer.push(() => this.#link?.lines(linesOf(text)));
        if (this.#link !== null) this.#arriveAtServer();
      },
      close: () => {
        this.#clientOpen = false;
        this.endServer();
      },
      keepAlive: () => {},
    };
  }

  /** What the server does with its end. */
  get stream(): { write(text: string): void; close(): void } {
    return {
      write: (text) => {
        if (this.#serverOpen) this.#send(() => this.#clientOpen && this.#events.lines(linesOf(text)));
      },
      close: () => {
        this.#serverOpen = false;
        this.#end("the server closed");
      },
    };
  }

  /** Both ends learn that the connection is gone, each in its time. */
  reset(): void {
    this.endServer();
    this.#end("reset");
  }

  /** The server learns that the client has gone. */
  endServer(): void {
    this.#toServer.push(() => {
      if (!this.#serverOpen) return;
      this.#serverOpen = false;
      this.#link?.ended();
    });
    if (this.#link !== null) this.#arriveAtServer();
  }

  /** The server's process has died: the client learns of it, unless the power failed. */
  serverDied(silently: boolean): void {
    this.#serverOpen = false;
    this.#link = null;
    if (!silently) this.#end("the server died");
  }

  #end(why: string): void {
    this.#send(() => {
      if (!this.#clientOpen) return;
      this.#clientOpen = false;
      this.#events.closed(new Error(why));
    });
  }

  /** To the client, behind all that was sent before. */
  #send(run: () => void): void {
    this.#toClient.push(run);
    const { world } = this.#network;
    this.#clientAt = Math.max(this.#clientAt, world.now + this.#network.delay());
    this.#whenReachable(this.#clientAt, () => this.client.execute(() => this.#toClient.shift()?.()));
  }

  #arriveAtServer(): void {
    const { world } = this.#network;
    this.#serverAt = Math.max(this.#serverAt, world.now + this.#network.delay());
    this.#whenReachable(this.#serverAt, () => this.#server?.execute(() => this.#toServer.shift()?.()));
  }

  #whenReachable(at: number, run: () => void, waitMs: number = RETRANSMIT_MS): void {
    this.#network.world.at(at, () => {
      if (this.#network.cut.has(this.client)) this.#whenReachable(at + waitMs, run, Math.min(2 * waitMs, MOST_WAIT_MS));
      else run();
    });
  }
}

/** How a client of this machine reaches the server, whichever runs at the time. */
export function dialer(client: Machine, network: Network, host: ServerHost, name: string): Dial {
  return (events) => {
    const pipe = new Pipe(client, network, events);
    network.world.after(network.delay(), () => host.connect(pipe));
    const { wire } = pipe;
    let isFirst = true;
    return {
      ...wire,
      write(text) {
        // all clients of the simulation are one process in truth; each says here which one it is meant to be
        wire.write(isFirst ? text.replace(/"pidStart":("\d+"|null)/, `"pidStart":"${name}"`) : text);
        isFirst = false;
      },
    };
  };
}

function linesOf(text: string): readonly string[] {
  return text.trimEnd().split("\n");
}
