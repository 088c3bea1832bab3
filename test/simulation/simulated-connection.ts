/** One connection between a client and a server: two streams of lines that keep their order. */

import type { Connector, Transport, TransportEvents } from "../../src/net/transport.ts";
import type { Connection } from "../../src/server/connection/connection.ts";
import type { ServerProcess } from "./server-process.ts";
import type { SimulatedMachine } from "./simulated-machine.ts";
import type { SimulatedNetwork } from "./simulated-network.ts";

/** An unreachable machine is tried again after this time, then after twice as long, and so on. */
const RETRANSMIT_MS = 25;
const MAX_WAIT_MS = 1_000;

export class SimulatedConnection {
  readonly client: SimulatedMachine;
  readonly #network: SimulatedNetwork;
  readonly #events: TransportEvents;
  #server: SimulatedMachine | null = null;
  #connection: Connection | null = null;
  #clientOpen = true;
  #serverOpen = false;
  readonly #toServer: (() => void)[] = [];
  readonly #toClient: (() => void)[] = [];
  #serverAt = 0;
  #clientAt = 0;

  constructor(client: SimulatedMachine, network: SimulatedNetwork, events: TransportEvents) {
    this.client = client;
    this.#network = network;
    this.#events = events;
  }

  /** The server has accepted the connection. */
  accept(server: SimulatedMachine, connection: Connection): void {
    this.#server = server;
    this.#connection = connection;
    this.#serverOpen = true;
    for (let count = this.#toServer.length; count > 0; count--) this.#arriveAtServer();
  }

  /** The server is not listening. */
  refuse(): void {
    this.#end("nobody listens");
  }

  /** The client's end. */
  get transport(): Transport {
    return {
      write: (text) => {
        if (!this.#clientOpen) return;
        this.#toServer.push(() => this.#connection?.receive(String(text).trimEnd().split("\n")));
        if (this.#connection !== null) this.#arriveAtServer();
      },
      close: () => {
        this.#clientOpen = false;
        this.closeByClient();
      },
      keepAlive: () => {},
    };
  }

  /** The server's end. */
  get stream(): { write(text: string): void; close(): void } {
    return {
      write: (text) => {
        if (this.#serverOpen) this.#send(() => this.#clientOpen && this.#events.onData(Buffer.from(text)));
      },
      close: () => {
        this.#serverOpen = false;
        this.#end("the server closed");
      },
    };
  }

  /** Both ends notice the lost connection, each in its time. */
  reset(): void {
    this.closeByClient();
    this.#end("reset");
  }

  /** The server notices that the client is gone. */
  closeByClient(): void {
    this.#toServer.push(() => {
      if (!this.#serverOpen) return;
      this.#serverOpen = false;
      this.#connection?.transportClosed();
    });
    if (this.#connection !== null) this.#arriveAtServer();
  }

  /** The server's process has crashed: the client notices it, unless the power failed. */
  closeByServer(silently: boolean): void {
    this.#serverOpen = false;
    this.#connection = null;
    if (!silently) this.#end("the server died");
  }

  #end(reason: string): void {
    this.#send(() => {
      if (!this.#clientOpen) return;
      this.#clientOpen = false;
      this.#events.onClosed(new Error(reason));
    });
  }

  /** To the client, after all that was sent before. */
  #send(run: () => void): void {
    this.#toClient.push(run);
    const { events } = this.#network;
    this.#clientAt = Math.max(this.#clientAt, events.now + this.#network.delay());
    this.#whenReachable(this.#clientAt, () => this.client.execute(() => this.#toClient.shift()?.()));
  }

  #arriveAtServer(): void {
    const { events } = this.#network;
    this.#serverAt = Math.max(this.#serverAt, events.now + this.#network.delay());
    this.#whenReachable(this.#serverAt, () => this.#server?.execute(() => this.#toServer.shift()?.()));
  }

  #whenReachable(time: number, run: () => void, waitMs: number = RETRANSMIT_MS): void {
    this.#network.events.schedule(time, () => {
      if (this.#network.partitioned.has(this.client))
        this.#whenReachable(time + waitMs, run, Math.min(2 * waitMs, MAX_WAIT_MS));
      else run();
    });
  }
}

/** The connection of a client of this machine to the present server. */
export function createConnector(
  client: SimulatedMachine,
  network: SimulatedNetwork,
  host: ServerProcess,
  name: string,
): Connector {
  return {
    url: "the lock server",
    connect(events) {
      const connection = new SimulatedConnection(client, network, events);
      network.events.after(network.delay(), () => host.connect(connection));
      const { transport } = connection;
      let isFirst = true;
      return {
        ...transport,
        write(text) {
          // all clients of the simulation are one real process; each reports its simulated one here
          transport.write(isFirst ? String(text).replace(/"pidStart":("\d+"|null)/, `"pidStart":"${name}"`) : text);
          isFirst = false;
        },
      };
    },
  };
}
