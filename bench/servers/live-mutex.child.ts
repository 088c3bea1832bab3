// The server of live-mutex.

import { answerCalls } from "../harness/calls.ts";
import { rival } from "../harness/rivals.ts";

interface LiveMutex {
  readonly Broker: new (options: object) => { ensure(): Promise<unknown> };
}

answerCalls({
  listen: async (path: string) => {
    const { Broker } = rival<LiveMutex>("live-mutex");
    await new Broker({ udsPath: path, lockExpiresAfter: 60_000, timeoutToFindNewLockholder: 60_000 }).ensure();
  },
});
