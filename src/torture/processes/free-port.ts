/** Ports for servers that cannot be told to take any. */

import { once } from "node:events";
import { createServer } from "node:net";

/** Below the range that outgoing connections are given: one of another test could take such a port before the server does. */
const [FIRST_PORT, END_PORT] = [10_000, 32_000];
/** So many ports lie between the first of this process and that of the next one. */
const PORT_SPACING = 50;

/**
 * A server binds its port long after it was found free. So none is given twice: here they come one after another, and the
 * processes of a test run begin far from each other.
 */
let nextPort = process.pid * PORT_SPACING;

/** A port of the loopback where nobody listens. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = FIRST_PORT + (nextPort++ % (END_PORT - FIRST_PORT));
    const server = createServer();
    const isFree = new Promise<boolean>((resolve) => {
      server.once("listening", () => resolve(true)).once("error", () => resolve(false));
    });
    server.listen(port, "127.0.0.1");
    if (!(await isFree)) continue;
    server.close();
    await once(server, "close");
    return port;
  }
}

/** Different ones. */
export async function freePorts(count: number): Promise<number[]> {
  const ports = new Set<number>();
  while (ports.size < count) ports.add(await freePort());
  return [...ports];
}
