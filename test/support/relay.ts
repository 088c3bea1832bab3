// A relay whose server may be down, as docker-proxy, ssh -L and haproxy are: it accepts connections all the time.

import type { Server } from "node:net";
import { connect, createServer } from "node:net";
import type { Address } from "../../src/torture/tcp-proxy.ts";

export class Relay {
  readonly #listener: Server;
  #target: Address | null = null;
  /** How many connections it has accepted and ended at once, with a FIN, because there is no server. */
  endedConnections = 0;

  private constructor() {
    this.#listener = createServer((client) => {
      client.on("error", () => client.destroy());
      if (this.#target === null) {
        this.endedConnections++;
        // what it does not read would turn the end into a reset
        client.resume().end();
        return;
      }
      const server = connect(this.#target);
      server.on("error", () => client.destroy());
      client.on("close", () => server.destroy());
      client.pipe(server).pipe(client);
    });
  }

  static async listen(address: Address): Promise<Relay> {
    const relay = new Relay();
    await new Promise<void>((resolve, reject) => {
      relay.#listener.once("error", reject).listen(address, resolve);
    });
    return relay;
  }

  /** From now on connections reach this server. */
  forwardTo(target: Address): void {
    this.#target = target;
  }

  /** Connections that are open end with their server or their client. */
  close(): void {
    this.#listener.close();
  }
}
