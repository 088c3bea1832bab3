/**
 * A second connection that keeps a session alive: a child process inherits it, so that the parent's locks outlive the
 * parent for as long as the child lives. For `holdfast run`; only on Unix sockets.
 */

import type { Socket } from "node:net";
import { connect } from "node:net";
import {
  decodeServerHello,
  encodeClientHello,
  MAX_HELLO_BYTES,
  PACKAGE_VERSION,
  PROTOCOL_VERSION,
} from "../../protocol/handshake.ts";
import { LineDecoder } from "../../protocol/lines.ts";
import type { Driver } from "../../spi/driver.ts";
import { getServerEndpoint } from "./address.ts";

/** A running server answers at once; one that is suspended, or is just dying, never does. */
const ANSWER_TIMEOUT_MS = 1_000;

/** A connection that keeps a session alive. */
export interface KeepSessionSocket {
  /** A connected socket, for a child's stdio. Nothing has to be read from it or written to it. */
  readonly socket: Socket;
  /** The session that it keeps alive: a secret. */
  readonly sessionId: string;
  /** The directory for the file in which a run records its locks; null: the server does not restore runs. */
  readonly runDirectory: string | null;
}

/**
 * Opens a keep-session connection to this driver's server; null unless the server is on a Unix socket. The driver must
 * be open.
 * @throws Error if the server refuses it, cannot be reached or does not answer within a second
 */
export async function openKeepSessionSocket(driver: Driver): Promise<KeepSessionSocket | null> {
  const endpoint = getServerEndpoint(driver);
  if (endpoint === undefined || !("path" in endpoint.address)) return null;
  const socket = connect({ path: endpoint.address.path });
  const { sessionId } = endpoint.connection;
  socket.setTimeout(ANSWER_TIMEOUT_MS, () =>
    socket.destroy(new Error(`did not answer within ${ANSWER_TIMEOUT_MS} ms`)),
  );
  socket.write(
    encodeClientHello({
      protocol: PROTOCOL_VERSION,
      version: PACKAGE_VERSION,
      label: "",
      session: sessionId,
      keepSession: true,
      pid: null,
      pidStart: null,
    }),
  );
  try {
    const { runDirectory = null } = decodeServerHello(await readFirstLine(socket));
    return { socket: socket.setTimeout(0), sessionId, runDirectory };
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

/** Reads the first line and pauses the socket after it. */
function readFirstLine(socket: Socket): Promise<string> {
  const reader = new LineDecoder(MAX_HELLO_BYTES);
  return new Promise((resolve, reject) => {
    socket.on("error", reject);
    socket.on("close", () => reject(new Error("the lock server ended the connection")));
    socket.on("data", (chunk: Buffer) => {
      const [line] = reader.push(chunk);
      if (line === undefined) return;
      socket.pause();
      socket.removeAllListeners("data");
      resolve(line);
    });
  });
}
