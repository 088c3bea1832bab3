// A proxy between a client and a server that breaks connections in the ways networks do.

import type { AddressInfo, Server, Socket } from "node:net";
import { connect, createServer } from "node:net";
import type { ProxyDirection } from "./proxy-faults.ts";
import { createFaultyDirection } from "./proxy-faults.ts";

export type Address = { readonly host: string; readonly port: number } | { readonly path: string };

export type TcpProxy = {
  readonly address: Address;
  /** From the client to the server. */
  readonly toTarget: ProxyDirection;
  /** From the server to the client. */
  readonly toClient: ProxyDirection;
  /** Ends every open connection in an orderly way (FIN), to both sides. */
  disconnect(): void;
  /** Ends every open connection with RST, to both sides; on a Unix socket it is a plain end. */
  reset(): void;
  /** Every open connection becomes half-open: it carries nothing any more, and neither side is told. Later ones work. */
  silence(): void;
  /** While on, new connections are ended at once. */
  refuseConnections(on: boolean): void;
  connections(): number;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** Listens on a free port of 127.0.0.1, or on a Unix socket when its path is given. */
export async function tcpProxy(target: Address, listen?: { readonly path: string }): Promise<TcpProxy> {
  const sockets = new Set<Socket>();
  const toTarget = createFaultyDirection();
  const toClient = createFaultyDirection();
  let refusing = false;

  const track = (socket: Socket): void => {
    sockets.add(socket.setNoDelay(true));
    socket.once("close", () => sockets.delete(socket));
    // "close" follows and tells the other side, through the faults of its direction.
    socket.on("error", () => socket.destroy());
  };
  const listener = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (client) => {
    if (refusing) {
      client.destroy();
      return;
    }
    const server = connect({ ...target, allowHalfOpen: true });
    track(client);
    track(server);
    toTarget.carry(client, server);
    toClient.carry(server, client);
  });
  const address = await startListening(listener, listen);

  const close = (): Promise<void> =>
    new Promise((resolve) => {
      toTarget.stop();
      toClient.stop();
      listener.close(() => resolve());
      for (const socket of sockets) socket.destroy();
    });

  return {
    address,
    toTarget,
    toClient,
    disconnect: () => {
      for (const socket of sockets) socket.destroySoon();
    },
    reset: () => {
      for (const socket of sockets) resetSocket(socket);
    },
    silence: () => {
      toTarget.silence();
      toClient.silence();
    },
    refuseConnections: (isRefusing) => {
      refusing = isRefusing;
    },
    connections: () => sockets.size / 2,
    close,
    [Symbol.asyncDispose]: close,
  };
}

function resetSocket(socket: Socket): void {
  // Unix sockets know no RST, and resetAndDestroy throws on them.
  if (socket.remoteAddress === undefined) socket.destroy();
  else socket.resetAndDestroy();
}

function startListening(listener: Server, listen: { readonly path: string } | undefined): Promise<Address> {
  return new Promise((resolve, reject) => {
    listener.once("error", reject);
    listener.listen(listen ?? { host: "127.0.0.1", port: 0 }, () => {
      resolve(listen ?? { host: "127.0.0.1", port: (listener.address() as AddressInfo).port });
    });
  });
}
