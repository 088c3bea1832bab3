/**
 * A second connection that keeps a session alive: a child process inherits it, so that what its parent holds outlives
 * the parent as long as the child does (design A.31). For `holdfast run`; only on Unix sockets.
 */

import type { Socket } from "node:net";
import { connect } from "node:net";
import { decodeWelcome, encodeHello, HELLO_BYTES, PROTOCOL, VERSION } from "../../protocol/hello.ts";
import { LineReader } from "../../protocol/lines.ts";
import type { Driver } from "../../spi/driver.ts";
import type { ServerOptions } from "./driver.ts";
import type { Address, Dial } from "./wire.ts";

/** How a driver's server is reached. */
export interface Reach {
  readonly session: string;
  readonly address: Address;
  readonly options: ServerOptions;
  readonly dial: Dial;
}

/** A server that is there answers at once; one that is stopped, or dies just now, never does. */
const ANSWER_MS = 1_000;

const reaches = new WeakMap<Driver, Reach>();

/** Notes how a driver's server is reached, and under which session. */
export function register(driver: Driver, reach: Reach): void {
  reaches.set(driver, reach);
}

/** How this driver's server is reached; undefined: it has none. */
export function reachOf(driver: Driver): Reach | undefined {
  return reaches.get(driver);
}

/** A connection that keeps a session alive. */
export interface Tether {
  /** Connected, to be given to a child as a stdio entry; nothing has to be read from it or written to it. */
  readonly socket: Socket;
  /** The session that it keeps: a secret. */
  readonly session: string;
  /** The folder in which a run writes down what it holds; null: the server restores nothing of a run. */
  readonly runsIn: string | null;
}

/**
 * A tether to this driver's server; null where that is not on a Unix socket of this machine. The driver must be open.
 * @throws Error if the server refuses it, cannot be reached or does not answer within a second
 */
export async function openTether(driver: Driver): Promise<Tether | null> {
  const reach = reaches.get(driver);
  if (reach === undefined || !("path" in reach.address)) return null;
  const socket = connect({ path: reach.address.path });
  const { session } = reach;
  socket.setTimeout(ANSWER_MS, () => socket.destroy(new Error(`did not answer within ${ANSWER_MS} ms`)));
  socket.write(
    encodeHello({ protocol: PROTOCOL, version: VERSION, label: "", session, tether: true, pid: null, pidStart: null }),
  );
  try {
    const { runsIn = null } = decodeWelcome(await firstLine(socket));
    return { socket: socket.setTimeout(0), session, runsIn };
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

/** The first line; the socket is paused behind it. */
function firstLine(socket: Socket): Promise<string> {
  const reader = new LineReader(HELLO_BYTES);
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
