/** The lock server, or the store behind it, loses a lock while a client is cut off (test/support/stores/connection-breaks.ts). */

import { lockServer } from "../../../src/drivers/server/driver.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { cleanUpAfterEach, startServer } from "../../support/server-fixture.ts";
import type { BreakableStore } from "../../support/stores/connection-breaks.ts";
import { testConnectionBreaks } from "../../support/stores/connection-breaks.ts";
import { tcpProxy } from "../../support/tcp-proxy.ts";

cleanUpAfterEach();

testConnectionBreaks("the lock server", async (): Promise<BreakableStore> => {
  const server = await startServer({ listen: "holdfast://127.0.0.1:0" });
  const endpoint = { host: "127.0.0.1", port: Number(server.addresses[0]?.split(":").at(-1)) };
  const proxy = await tcpProxy(endpoint);
  return {
    driverBehindProxies: () => lockServer(proxy.address as typeof endpoint),
    directDriver: () => lockServer(endpoint),
    proxies: [proxy],
    // the waiting claims of a client that is cut off are passed over
    async loseClaims() {
      const driver = lockServer(endpoint);
      await driver.open(NO_EVENTS);
      const { items } = await driver.list({ prefix: "" }, { max: 10 });
      for (const { locks, answer } of items) {
        if (answer.state !== "held") continue;
        await driver.revoke?.([{ key: locks[0].key, token: answer.token, now: true }]);
      }
      await driver.close();
    },
    close: () => proxy.close(),
  };
});
