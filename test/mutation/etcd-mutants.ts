/** Faults of the driver of etcd. */

import type { Mutant } from "./mutants.ts";

const leases = "test/unit/drivers/etcd/leases.test.ts";
const names = "test/unit/drivers/etcd/names.test.ts";
const conformance = "test/conformance/etcd.test.ts";
const fence = "test/integration/etcd/fence.test.ts";

export const ETCD_MUTANTS: readonly Mutant[] = [
  {
    name: "on etcd, a keep-alive that is believed although the leader has changed",
    file: "src/drivers/etcd/leases.ts",
    find: "if (result.header.raft_term !== (await this.readTerm(timeoutMs))) continue;",
    replace: "await this.readTerm(timeoutMs);",
    tests: leases,
  },
  {
    name: "on etcd, a lease that counts from the answer",
    file: "src/drivers/etcd/leases.ts",
    find: "lease.provenAt = sentAt;",
    replace: "lease.provenAt = clock.now();",
    tests: leases,
  },
  {
    name: "on etcd, a lease that is kept for further claims although a late call may put an entry on it",
    file: "src/drivers/etcd/queue.ts",
    find: "if (entry.lease !== null) leases.retire(entry.lease);",
    replace: "",
    tests: "test/integration/etcd/faults.test.ts",
  },
  {
    name: "on etcd, a held claim that is read at each renewal although its watch covers it",
    file: "src/drivers/etcd/driver.ts",
    find: 'return grant === "held" && lease !== null && isCovered;',
    replace: "return false;",
    tests: "test/integration/etcd/faults.test.ts",
  },
  {
    name: "on etcd, a lease that is kept alive for entries whose claims were not renewed",
    file: "src/drivers/etcd/leases.ts",
    find: "filter(({ dueAt }) => dueAt <= now)",
    replace: "filter(({ dueAt }) => dueAt > now + 1_000_000)",
    tests: leases,
  },
  {
    name: "on etcd, a lease of each claim",
    file: "src/drivers/etcd/leases.ts",
    find: "this.#pendingGrants.get(seconds) ??",
    replace: "",
    tests: leases,
  },
  {
    name: "on etcd, a call that arrives after its release makes an entry",
    file: "src/drivers/etcd/queue.ts",
    find: "isAbsent({ key: encodeText(this.#toTombstone(entry)) }),",
    replace: "",
    tests: conformance,
  },
  {
    name: "on etcd, a try that does not see who is there",
    file: "src/drivers/etcd/queue.ts",
    find: "isAbsent(isOnlyIfFree ? range : { key: encodeText(entry.name) })",
    replace: "isAbsent({ key: encodeText(entry.name) })",
    tests: conformance,
  },
  {
    name: "on etcd, a waiting claim that is granted when any entry before it is gone",
    file: "src/drivers/etcd/watches.ts",
    find: "const isOnlyOne = isComplete && entry.isExclusive && ownIndex === 1;",
    replace: "const isOnlyOne = entry.isExclusive;",
    tests: conformance,
  },
  {
    name: "on etcd, an entry of another key that begins with this one",
    file: "src/drivers/etcd/names.ts",
    find: '.filter(({ name }) => !name.includes("/", queueName.length))',
    replace: "",
    tests: names,
  },
  {
    name: "on etcd, an entry of another program that takes one permit",
    file: "src/drivers/etcd/names.ts",
    find: "decoded ?? { permits: ALL_PERMITS, limit: ALL_PERMITS }",
    replace: "decoded ?? { permits: 1, limit: ALL_PERMITS }",
    tests: names,
  },
  {
    name: "on etcd, a fence that does not count the base of the tokens",
    file: "src/drivers/revision-tokens.ts",
    find: "return (token - this.#base) /",
    replace: "return token /",
    tests: fence,
  },
];
