/** Faults of ZooKeeper's driver and client, and of what the core asks of it for people. */

import type { Mutant } from "./mutants.ts";

const refusals = "test/zookeeper/refusals.test.ts";
const machine = "test/zookeeper/machine.test.ts";
const lookups = "test/client/lookups.test.ts";
const health = "test/client/store-health.test.ts";

export const ZOOKEEPER_MUTANTS: readonly Mutant[] = [
  {
    name: "on ZooKeeper, a server before 3.6 taken for one that restores watches",
    file: "src/drivers/zookeeper/client/connection.ts",
    find: "if (code === UNIMPLEMENTED) throw new OutdatedServerError();",
    replace: "",
    tests: machine,
  },
  {
    name: "on ZooKeeper, opening given up with the first connection that is lost",
    file: "src/drivers/zookeeper/client/zookeeper.ts",
    find: "if (!isLost || this.#connection.isOver) throw error;",
    replace: "throw error;",
    tests: machine,
  },
  {
    name: "on ZooKeeper, a renewal that asks about no node",
    file: "src/drivers/zookeeper/driver.ts",
    find: 'await Promise.all([zk.sync("/"), watching.confirmOne(held)]);',
    replace: 'await zk.sync("/");',
    tests: refusals,
  },
  {
    name: "on ZooKeeper, a renewal that always asks about the same node",
    file: "src/drivers/zookeeper/watching.ts",
    find: "next.confirmedIn = ++this.#turn;",
    replace: "",
    tests: refusals,
  },
  {
    name: "on ZooKeeper, a lock taken where it could not be given back",
    file: "src/drivers/zookeeper/folders.ts",
    find: "if (!this.#proven.has(text)) await this.#probe(folder);",
    replace: "",
    tests: refusals,
  },
  {
    name: "on ZooKeeper, the folder of a queue made without a child: it would stay for ever",
    file: "src/drivers/zookeeper/client/recipes.ts",
    find: '    { do: "create", path: child, mode: "ephemeral", acl },\n    { do: "delete", path: child },\n',
    replace: "",
    tests: "test/zookeeper/inspect.test.ts",
  },
  {
    name: "on ZooKeeper, an exceeded quota asked about again for ever",
    file: "src/drivers/zookeeper/client/errors.ts",
    find: '"INVALID_ACL", "QUOTA_EXCEEDED"]',
    replace: '"INVALID_ACL"]',
    tests: refusals,
  },
  {
    name: "a look at the queue for each wait that ends",
    file: "src/client/lookups.ts",
    find: "if (known !== undefined) return known;",
    replace: "",
    tests: lookups,
  },
  {
    name: "a look at the queue sent before the renewals of its turn",
    file: "src/client/lookups.ts",
    find: "this.#engine.sendRenewals();",
    replace: "",
    tests: lookups,
  },
  {
    name: "looks at all keys at once",
    file: "src/client/lookups.ts",
    find: "while (this.#underWay < MOST_AT_ONCE) {",
    replace: "for (;;) {",
    tests: lookups,
  },
  {
    name: "a look that goes on when nobody waits for it any more",
    file: "src/client/lookups.ts",
    find: "driver.list({ key }, MOST_LOOKED_AT, undefined, signal)",
    replace: "driver.list({ key }, MOST_LOOKED_AT)",
    tests: lookups,
  },
  {
    name: "a refusal taken for an outage of the store",
    file: "src/client/store-health.ts",
    find: "|| isFatal(error) ||",
    replace: "||",
    tests: health,
  },
  {
    name: "a late answer taken for an outage of the store",
    file: "src/client/store-health.ts",
    find: "(this.#heardAt.get(shard) ?? sentAt) > sentAt",
    replace: "false",
    tests: health,
  },
];
