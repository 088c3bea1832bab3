/** Faults in what survives a restart of the server: the state folder, and recoveries. */

import type { Mutant } from "./mutants.ts";

export const STORAGE_MUTANTS: readonly Mutant[] = [
  {
    name: "a release answered although the claim would come back after a crash",
    file: "src/server/storage/journal.ts",
    find: "      if (isPending()) throw error;\n",
    replace: "",
    tests: "test/integration/server/journal-failures.test.ts",
  },
  {
    name: "a release answered before its claim is dropped from the journal, or a repeated one",
    file: "src/server/storage/write-ahead.ts",
    find: "return pendingIds.length === 0 ? null : journal.waitUntilDropped(pendingIds);",
    replace: "return null;",
    tests: "test/integration/server/journal-failures.test.ts",
  },
  {
    name: "a revocation answered although it was not written",
    file: "src/server/local/local-backend.ts",
    find: "if (record !== null) records.push(record);",
    replace: "",
    tests: "test/integration/server/journal-failures.test.ts",
  },
  {
    name: "a full disk without room to drop claims",
    file: "src/server/storage/state-directory.ts",
    find: "await this.#keepRoom(file, end + claimCount * DROP_LINE_BYTES);",
    replace: "",
    tests: "test/integration/server/state-directory.test.ts",
  },
  {
    name: "ended claims that wait for a rewrite of the journal",
    file: "src/server/storage/journal.ts",
    find: "      await this.#writeDropsAlone();\n",
    replace:
      "      for (const id of this.#currentDrops) this.#unwrittenDrops.add(id);\n      this.#currentDrops = new Set();\n",
    tests: "test/unit/server/storage/durable-log.test.ts",
  },
  {
    name: "a damaged list of sessions believed",
    file: "src/server/storage/checksum-chain.ts",
    find: "if (header === null || lines.length < header.count) return null;",
    replace: "if (header === null) return null;",
    tests: "test/integration/server/damaged-state.test.ts",
  },
  {
    name: "a changed line of the state folder believed",
    file: "src/server/storage/checksum-chain.ts",
    find: "    if (line !== ",
    replace: "    if (line === undefined && line !== ",
    tests: "test/integration/server/damaged-state.test.ts",
  },
  {
    name: "a missing journal believed",
    file: "src/server/storage/state-directory.ts",
    find: "journal: journalText === null && state === null ? null :",
    replace: "journal: journalText === null ? null :",
    tests: "test/integration/server/damaged-state.test.ts",
  },
  {
    name: "an older copy of the state believed: the token",
    file: "src/server/local/recovery-window.ts",
    find: "if (items.some((item) => this.#isFromLaterState(item, time.micros))) this.reportOutdatedState();",
    replace: "",
    tests: "test/integration/server/stale-state.test.ts",
  },
  {
    name: "an older copy of the state believed: the start",
    file: "src/server/service.ts",
    find: "return lastSeen.id !== state.id || lastSeen.generation >= state.generation;",
    replace: "return false;",
    tests: "test/integration/server/stale-state.test.ts",
  },
  {
    name: "an outdated state forgotten by a crash",
    file: "src/server/storage/durable-log.ts",
    find: "    this.#hasUnknownHolders = true;\n",
    replace: "",
    tests: "test/integration/server/stale-state.test.ts",
  },
  {
    name: "the rest of a recovery forgotten at a stop",
    file: "src/server/local/local-backend.ts",
    find: "const recovery = this.recoveryWindow.toSavedRecovery();",
    replace: "const recovery = null;",
    tests: "test/integration/server/recovery-duration.test.ts",
  },
  {
    name: "the longest lease lowered below one that was asked for",
    file: "src/server/storage/durable-log.ts",
    find: "return Math.max(this.#earlierLeaseMs, this.#requestedLeaseMs);",
    replace: "return this.#earlierLeaseMs > 0 ? Math.max(this.#earlierLeaseMs, this.#requestedLeaseMs) : 0;",
    tests: "test/integration/server/recovery-duration.test.ts",
  },
  {
    name: "a state written although its lock was lost",
    file: "src/server/storage/state-directory.ts",
    find: "    if (reason !== null) throw new StateError(reason);\n",
    replace: "",
    tests: "test/integration/server/recovery-duration.test.ts",
  },
];
