// The client's helpers under concurrent changes. Needs no server.

import { expect, test } from "vitest";
import { createBelow } from "../../../../../src/drivers/zookeeper/client/helpers.ts";
import { OP, OPEN_TO_ALL } from "../../../../../src/drivers/zookeeper/client/records.ts";
import { ZooKeeper } from "../../../../../src/drivers/zookeeper/client/zookeeper.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { createScriptedServers } from "./scripted-servers.ts";

const [NO_NODE, NODE_EXISTS] = [-101, -110];

test("a parent that is removed before each try is created again a few times, then the call fails", async () => {
  const [clock, servers] = [new FakeClock(), createScriptedServers()];
  const zk = new ZooKeeper({ servers: [{ host: "a", port: 2_181 }], clock, connector: servers.dial });
  const pendingOpen = zk.open();
  servers.peer.accept();
  servers.peer.welcome({ id: 7n, timeoutMs: 9_000 });
  await pendingOpen;
  servers.peer.sent();
  const pendingNode = createBelow(zk, "/key", "place-", { mode: "ephemeralSequential", acl: OPEN_TO_ALL }).catch(
    (error: unknown) => error,
  );
  const ops: number[] = [];
  for (let turn = 0; turn < 50; turn++) {
    await clock.advance(0);
    for (const frame of servers.peer.sent()) {
      const [xid, op] = frame as [number, number];
      ops.push(op);
      servers.peer.answer(xid, op === OP.multi ? NODE_EXISTS : NO_NODE);
    }
  }
  expect(await pendingNode).toMatchObject({ code: "NO_NODE" });
  expect(ops.filter((op) => op !== OP.multi)).toHaveLength(5);
  expect(ops.filter((op) => op === OP.multi)).toHaveLength(4);
  await Promise.all([zk.close(), clock.advance(2_000)]);
});
