/** Faults in elections: two leaders at a time, a leader that is not told, an old token. */

import type { Mutant } from "./mutants.ts";

const tests = "test/unit/leader";
const term = { file: "src/leader/term.ts", tests };
const election = { file: "src/leader/election.ts", tests };
const leader = { file: "src/leader/leader.ts", tests };

export const LEADER_MUTANTS: readonly Mutant[] = [
  {
    ...term,
    name: "a leader that is not told at the deadline of its lease",
    find: 'else signal.addEventListener("abort", onLost, { once: true });',
    replace: "",
  },
  {
    ...term,
    name: "a leader that was stopped and reads its term without reading the clocks",
    find: "void this.#lock.signal;",
    replace: "",
  },
  {
    ...term,
    name: "a leader that is told after its release was sent",
    find: "    this.end();\n    return this.#lock.release();",
    replace: "    const released = await this.#lock.release();\n    this.end();\n    return released;",
  },
  {
    ...election,
    name: "a leadership that passes on while the body of the loop still runs",
    find: "for (const term of this.#terms) term.end();",
    replace: "for (const term of this.#terms) void term.resign();",
  },
  {
    ...election,
    name: "a loop that is left before its term was released",
    find: "await term.resign();",
    replace: "void term.resign();",
  },
  {
    ...election,
    name: "two leaders at a time, by a lock that does not exclude",
    find: "(await this.#client.acquire(this.#target, this.#settings)) as Lock;",
    replace:
      "(await this.#client.acquire({ locks: [{ ...this.#target.locks[0], permits: 1 }], keys: [this.name] }, this.#settings)) as Lock;",
  },
  {
    ...election,
    name: "a term of an election that was closed with the grant",
    find: "if (this.#stopping.aborted) return;",
    replace: "",
  },
  {
    ...election,
    name: "terms of one process that share a claim, so that the store shows an old token",
    find: 'queueKind: "alone",',
    replace: 'queueKind: "shared",',
  },
  {
    ...election,
    name: "a term with the token of a lock that its flow holds already",
    find: "this.#client.flowHolds.find(this.#target.locks[0].key).length > 0",
    replace: "this.#client.flowHolds.find(this.#target.locks[0].key).length > 1",
  },
  {
    ...leader,
    name: "a candidate that waits shown as the leader",
    find: 'answer.state === "held" && isEachExclusive',
    replace: 'answer.state !== "none" && isEachExclusive',
  },
  {
    ...leader,
    name: "a reader shown as the leader",
    find: " && isEachExclusive(locks.filter((spec) => spec.key === key))",
    replace: "",
  },
];
