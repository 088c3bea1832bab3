// The server of live-mutex.

import type { Listen } from "../harness/address.ts";
import { freePort } from "../harness/address.ts";
import { answerCalls } from "../harness/calls.ts";
import { rival } from "../harness/rivals.ts";

interface LiveMutex {
  readonly Broker: new (options: object) => { ensure(): Promise<unknown> };
}

answerCalls({
  listen: async ({ path, tcp }: Listen) => {
    const port = tcp ? await freePort() : 0;
    const where = tcp ? { host: "127.0.0.1", port, noDelay: true } : { udsPath: path };
    const { Broker } = rival<LiveMutex>("live-mutex");
    await new Broker({ ...where, lockExpiresAfter: 60_000, timeoutToFindNewLockholder: 60_000 }).ensure();
    return tcp ? `tcp:${port}` : path;
  },
});
