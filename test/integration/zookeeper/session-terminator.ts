// Ends a client's session from outside, as an administrator or a fault can: a proxy that reads its password in transit.

import type { Socket } from "node:net";
import { connect, createServer } from "node:net";
import { JuteReader, JuteWriter } from "../../../src/drivers/zookeeper/client/jute.ts";
import { readConnect, writeConnect } from "../../../src/drivers/zookeeper/client/records.ts";

type ServerAddress = { readonly host: string; readonly port: number };

export type SessionTerminator = {
  /** For the client, instead of the server's own. */
  readonly address: ServerAddress;
  /** Ends the session that was created or resumed last; settles when the server has done so. */
  terminateSession(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

const CLOSE_SESSION = -11;

export async function createSessionTerminator(target: ServerAddress): Promise<SessionTerminator> {
  const sockets = new Set<Socket>();
  let session: { readonly id: bigint; readonly password: Buffer } | null = null;
  const listener = createServer((client) => {
    const server = connect(target);
    for (const socket of [client, server]) {
      sockets.add(socket);
      socket.on("error", () => socket.destroy());
      socket.on("close", () => {
        client.destroy();
        server.destroy();
      });
    }
    // the greeting is short and comes in one piece on loopback
    server.once("data", (chunk: Buffer) => {
      const { timeoutMs, sessionId: id, password } = readConnect(new JuteReader(chunk.subarray(4)));
      if (timeoutMs > 0) session = { id, password };
    });
    client.pipe(server).pipe(client);
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const { port } = listener.address() as { port: number };

  return {
    address: { host: "127.0.0.1", port },
    async terminateSession() {
      if (session === null) throw new Error("no session has passed");
      const { id: sessionId, password } = session;
      const hello = new JuteWriter();
      writeConnect(hello, { lastZxidSeen: 0n, timeoutMs: 2_000, sessionId, password });
      const closeRequest = new JuteWriter().int(1).int(CLOSE_SESSION);
      await new Promise<void>((resolve, reject) => {
        const socket = connect(target, () => socket.write(Buffer.concat([hello.frame(), closeRequest.frame()])));
        socket.on("error", reject);
        socket.on("close", () => resolve());
        socket.resume();
      });
    },
    async [Symbol.asyncDispose]() {
      const closed = new Promise((resolve) => listener.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
