// A block of each page about ZooKeeper runs as its reader would run it.

import { expect, test } from "vitest";
import { runSnippet } from "../../support/page-snippet.ts";
import { zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";

const fixture = zookeeperFixture();

test("the block of the page runs: zookeeper", async () => {
  const { host, port } = fixture.server.address;
  fixture.foreignPaths.add("/my-app");
  const result = await runSnippet({
    page: "zookeeper",
    replaced: { "zookeeper://zk1:2181,zk2:2181,zk3:2181": `zookeeper://${host}:${port}` },
  });
  expect(result).toMatchObject({ code: 0, err: "" });
  expect(result.out).toMatch(/^mine, with token \d+\n$/);
});

test("the block of the page runs: coming-from-curator", async () => {
  const { host, port } = fixture.server.address;
  fixture.foreignPaths.add("/mylock");
  const result = await runSnippet({
    page: "coming-from-curator",
    given: `
      export const work = async (lock) => console.log(lock.keys[0]);
      export const after = () => process.exit();`,
    replaced: { '"zk1", port: 2181': `"${host}", port: ${port}` },
  });
  expect(result).toEqual({ code: 0, out: "/mylock\n", err: "" });
});
