/**
 * The articles' unfair variant, deliberately: a random number behind the name instead of the server's, and the lowest
 * holds. A claim that draws a lower number than the holder's is granted beside it. The suite must notice.
 */

import { makePath } from "../../../src/drivers/zookeeper/client/helpers.ts";
import { OPEN_TO_ALL } from "../../../src/drivers/zookeeper/client/records.ts";
import type { ZooKeeper } from "../../../src/drivers/zookeeper/client/zookeeper.ts";
import type { Answer, Claim, Driver } from "../../../src/spi/driver.ts";
import { toReleases } from "../../support/releases.ts";
import { setData } from "../../support/stores/zookeeper-requests.ts";

export function randomSuffixLock(zk: ZooKeeper, root: string, sessionMs: number): Driver {
  const paths = new Map<string, { readonly path: string; token: bigint }>();
  const folderOf = ({ locks: [{ key }] }: Claim): string => `${root}/${encodeURIComponent(key)}`;

  async function look(claim: Claim): Promise<Answer> {
    const path = paths.get(claim.id);
    if (path === undefined) return { state: "none" };
    const { names } = await zk.children(folderOf(claim));
    if (path.token === 0n && path.path.endsWith(`/${[...names].sort()[0]}`)) {
      // rises from grant to grant, so that the tokens do not reveal the fault
      path.token = (await setData(zk, folderOf(claim), Buffer.alloc(0))).mzxid;
    }
    if (path.token > 0n) return { state: "held", token: path.token, tokenCount: 1, remainingMs: sessionMs };
    return { state: "waiting", remainingMs: sessionMs, recheckMs: 5 };
  }

  return {
    name: "random suffix",
    async open() {
      await zk.open();
      await makePath(zk, root, OPEN_TO_ALL);
      return {
        lease: { claim: false, sessionMs },
        manyKeys: false,
        permits: "one",
        fencing: true,
        fifo: false,
        durability: "failover",
        recall: false,
      };
    },
    async claim(claim) {
      await makePath(zk, folderOf(claim), OPEN_TO_ALL);
      const name = `${folderOf(claim)}/lock-${Math.random().toFixed(8)}-${claim.id}`;
      const { path } = await zk.create(name, { mode: "ephemeral" });
      paths.set(claim.id, { path, token: 0n });
      const answer = await look(claim);
      if (answer.state === "held" || claim.wait) return answer;
      await this.release(toReleases(claim));
      return { state: "none" };
    },
    renew: (claims) => Promise.all(claims.map(look)),
    release: (releases) =>
      Promise.all(
        releases.map(async ({ claim: { id } }) => {
          const path = paths.get(id);
          paths.delete(id);
          if (path !== undefined) await zk.delete(path.path);
          return path !== undefined;
        }),
      ),
    list: async () => ({ items: [] }),
    close: () => zk.close(),
  };
}
