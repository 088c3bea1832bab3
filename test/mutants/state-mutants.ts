/** Faults in what survives a restart of the server: the state folder, and recoveries. */

import type { Mutant } from "./mutants.ts";

export const STATE_MUTANTS: readonly Mutant[] = [
  {
    name: "a damaged list of sessions believed",
    file: "src/server/chain.ts",
    find: "if (header === null || lines.length < header.count) return null;",
    replace: "if (header === null) return null;",
    tests: "test/server/damaged-state.test.ts",
  },
  {
    name: "a changed line of the state folder believed",
    file: "src/server/chain.ts",
    find: "    if (line !== ",
    replace: "    if (line === undefined && line !== ",
    tests: "test/server/damaged-state.test.ts",
  },
  {
    name: "a missing journal believed",
    file: "src/server/state.ts",
    find: "journal: journal === null && state === null ? null :",
    replace: "journal: journal === null ? null :",
    tests: "test/server/damaged-state.test.ts",
  },
  {
    name: "an older copy of the state believed: the token",
    file: "src/server/reclaiming.ts",
    find: "if (items.some((item) => this.#isOfLaterState(item, micros))) this.begin();",
    replace: "",
    tests: "test/server/older-state.test.ts",
  },
  {
    name: "an older copy of the state believed: the start",
    file: "src/server/hub.ts",
    find: "return seen.id !== state.id || seen.generation >= state.generation;",
    replace: "return false;",
    tests: "test/server/older-state.test.ts",
  },
  {
    name: "an outdated state forgotten by a crash",
    file: "src/server/ledger.ts",
    find: "    this.#strangers = true;\n",
    replace: "",
    tests: "test/server/older-state.test.ts",
  },
  {
    name: "the rest of a recovery forgotten at a stop",
    file: "src/server/opening.ts",
    find: "recovery: keeper.recovery.saved() };",
    replace: "recovery: null };",
    tests: "test/server/first-start.test.ts",
  },
  {
    name: "the longest lease lowered below one that was asked for",
    file: "src/server/ledger.ts",
    find: "return Math.max(this.#beforeMs, this.#askedMs);",
    replace: "return this.#beforeMs > 0 ? Math.max(this.#beforeMs, this.#askedMs) : 0;",
    tests: "test/server/first-start.test.ts",
  },
  {
    name: "a state written although its lock was lost",
    file: "src/server/state.ts",
    find: "    if (broken !== null) throw new StateError(broken);\n",
    replace: "",
    tests: "test/server/first-start.test.ts",
  },
];
