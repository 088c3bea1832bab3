/** Ports for servers that cannot be told to take any. */

import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";

/** Below the range that outgoing connections are given: one of another test could take such a port before the server does. */
const [FIRST, END] = [10_000, 32_000];

/** A port of the loopback where nobody listens. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(FIRST, END);
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
