import { test } from "vitest";
import { crowdEnds } from "../support/crowd.ts";
import { zookeeperScene } from "../support/zookeeper-scene.ts";

const scene = zookeeperScene({}, { root: "/crowd" });

test("2,000 waits that end at once cost nobody a lock and leave no node: ZooKeeper", async () => {
  await crowdEnds({
    driver: () => scene.made(),
    placesOn: async (key) => (await scene.zk.children(`/crowd/${key}`)).names.length,
  });
}, 90_000);
