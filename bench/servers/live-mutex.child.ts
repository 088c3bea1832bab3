// The server of live-mutex.

import type { ListenRequest } from "../harness/address.ts";
import { freePort } from "../harness/address.ts";
import { serveCalls } from "../harness/child-rpc.ts";
import { thirdPartyVersion } from "../harness/third-party.ts";

interface LiveMutex {
  readonly Broker: new (options: object) => { ensure(): Promise<unknown> };
}

serveCalls({
  listen: async ({ path, tcp }: ListenRequest) => {
    const port = tcp ? await freePort() : 0;
    const endpoint = tcp ? { host: "127.0.0.1", port, noDelay: true } : { udsPath: path };
    const { Broker } = thirdPartyVersion<LiveMutex>("live-mutex");
    await new Broker({ ...endpoint, lockExpiresAfter: 60_000, timeoutToFindNewLockholder: 60_000 }).ensure();
    return tcp ? `tcp:${port}` : path;
  },
});
