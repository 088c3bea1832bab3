/** Faults of ZooKeeper's driver and client, and of what the core asks of it for people. */

import type { Mutant } from "./mutants.ts";

const refusals = "test/integration/zookeeper/server-errors.test.ts";
const machine = "test/unit/drivers/zookeeper/client/zookeeper.test.ts";
const lookups = "test/unit/client/queue-reader.test.ts";
const health = "test/unit/client/store-monitor.test.ts";

export const ZOOKEEPER_MUTANTS: readonly Mutant[] = [
  {
    name: "on ZooKeeper, a holder recalled by a claim that only tries",
    file: "src/drivers/zookeeper/recall-watches.ts",
    find: "held.isWanted = decodeData(data)?.wait !== false;",
    replace: "held.isWanted = true;",
    tests: "test/integration/zookeeper/recall.test.ts",
  },
  {
    name: "on ZooKeeper, a queue that is not read again after an event",
    file: "src/drivers/zookeeper/recall-watches.ts",
    find: "    this.#lookAt(held, null);\n    this.#watch(held);\n",
    replace: "",
    tests: "test/conformance/zookeeper.test.ts",
  },
  {
    name: "on ZooKeeper, a list of the queue for each claim of a crowd",
    file: "src/drivers/zookeeper/shared-calls.ts",
    find: "if (calls === undefined) return this.#send(key, send);",
    replace: "if (calls !== null) return this.#send(key, send);",
    tests: "test/integration/zookeeper/bulk-cancellation.test.ts",
  },
  {
    name: "on ZooKeeper, a claim that is answered from a list sent before its node was made",
    file: "src/drivers/zookeeper/shared-calls.ts",
    find: "calls.next ??= calls.inFlight.catch(() => undefined).then(() => this.#send(key, send));\n    return calls.next;",
    replace: "return calls.inFlight;",
    tests: "test/unit/drivers/zookeeper/shared-calls.test.ts",
  },
  {
    name: "on ZooKeeper, a server before 3.6 taken for one that restores watches",
    file: "src/drivers/zookeeper/client/connection.ts",
    find: "if (code === UNIMPLEMENTED_CODE) throw new OutdatedServerError();",
    replace: "",
    tests: machine,
  },
  {
    name: "on ZooKeeper, opening given up with the first connection that is lost",
    file: "src/drivers/zookeeper/client/zookeeper.ts",
    find: "if (!isLost || this.#connection.isClosed) throw error;",
    replace: "throw error;",
    tests: machine,
  },
  {
    name: "on ZooKeeper, a renewal that asks about no node",
    file: "src/drivers/zookeeper/driver.ts",
    find: 'await Promise.all([zk.sync("/"), watches.confirmOne(held)]);',
    replace: 'await zk.sync("/");',
    tests: refusals,
  },
  {
    name: "on ZooKeeper, a renewal that always asks about the same node",
    file: "src/drivers/zookeeper/node-watches.ts",
    find: "next.confirmedAtTurn = ++this.#turn;",
    replace: "",
    tests: refusals,
  },
  {
    name: "on ZooKeeper, a lock taken where it could not be given back",
    file: "src/drivers/zookeeper/key-nodes.ts",
    find: "if (!this.#verifiedAcls.has(text)) await this.#checkDelete(keyPath);",
    replace: "",
    tests: refusals,
  },
  {
    name: "on ZooKeeper, the folder of a queue made without a child: it would stay for ever",
    file: "src/drivers/zookeeper/client/helpers.ts",
    find: '    { kind: "create", path: child, mode: "ephemeral", acl },\n    { kind: "delete", path: child },\n',
    replace: "",
    tests: "test/integration/zookeeper/zookeeper-inspector.test.ts",
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
    file: "src/client/queue-reader.ts",
    find: "if (existing !== undefined && isShared) return existing;",
    replace: "",
    tests: lookups,
  },
  {
    name: "a look at the queue sent before the renewals of its turn",
    file: "src/client/queue-reader.ts",
    find: "this.#engine.flushRenewals();",
    replace: "",
    tests: lookups,
  },
  {
    name: "looks at all keys at once",
    file: "src/client/queue-reader.ts",
    find: "while (this.#inFlight < MAX_IN_FLIGHT) {",
    replace: "for (;;) {",
    tests: lookups,
  },
  {
    name: "a look that goes on when nobody waits for it any more",
    file: "src/client/queue-reader.ts",
    find: "driver.list({ key }, { max: MAX_CLAIMS, signal })",
    replace: "driver.list({ key }, { max: MAX_CLAIMS })",
    tests: lookups,
  },
  {
    name: "a refusal taken for an outage of the store",
    file: "src/client/store-monitor.ts",
    find: "|| isFatalError(error) ||",
    replace: "||",
    tests: health,
  },
  {
    name: "a late answer taken for an outage of the store",
    file: "src/client/store-monitor.ts",
    find: "(this.#lastContactAt.get(shard) ?? sentAt) > sentAt",
    replace: "false",
    tests: health,
  },
];
