/** How many lines pass between a client and its server. */

import { ChildProcessRpc } from "./child-rpc.ts";
import type { Measured } from "./client.child.ts";
import type { Workload } from "./closed-loop.ts";
import { startCountingProxy } from "./counting-proxy.ts";
import { CLIENT_PROGRAM, withImplementation } from "./rounds.ts";

/** Lines a pair each way. @param name of an implementation with a server, on a Unix socket */
export function countLines(name: string, workload: Workload): Promise<{ readonly up: number; readonly down: number }> {
  return withImplementation(name, async ({ socket }) => {
    const proxy = await startCountingProxy(`${socket}.relay`, socket);
    const client = new ChildProcessRpc(CLIENT_PROGRAM, [name, `${socket}.relay`]);
    try {
      // what comes first is not counted: hellos, and token ranges that grow
      await client.call<Measured>("perform", workload);
      const before = proxy.counts();
      const { pairs } = await client.call<Measured>("perform", workload);
      const after = proxy.counts();
      return { up: (after.up - before.up) / pairs, down: (after.down - before.down) / pairs };
    } finally {
      await client.end();
      proxy.close();
    }
  });
}
