/** ZooKeeper loses a lock while its client is cut off (test/support/stores/connection-breaks.ts). */

import { randomUUID } from "node:crypto";
import type { ServerAddress } from "../../../src/drivers/zookeeper/driver.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import type { BreakableStore } from "../../support/stores/connection-breaks.ts";
import { testConnectionBreaks } from "../../support/stores/connection-breaks.ts";
import { zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";

const fixture = zookeeperFixture();

testConnectionBreaks("ZooKeeper", async (): Promise<BreakableStore> => {
  const root = `/${randomUUID()}`;
  const proxy = await tcpProxy(fixture.server.address);
  return {
    driverBehindProxies: () => fixture.createDriver({ root, servers: [proxy.address as ServerAddress] }),
    directDriver: () => fixture.createDriver({ root }),
    proxies: [proxy],
    async loseClaims() {
      for (const key of (await fixture.observer.children(root)).names)
        for (const node of (await fixture.observer.children(`${root}/${key}`)).names)
          await fixture.observer.delete(`${root}/${key}/${node}`);
    },
    close: () => proxy.close(),
  };
});
