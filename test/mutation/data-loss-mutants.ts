/** Faults in guardDataLoss of databases: each grants a lock of a live holder after a loss of data. */

import type { Mutant } from "./mutants.ts";

const postgres = { tests: "test/integration/postgres/data-loss-guard.test.ts" };
const mysql = { tests: "test/integration/mysql/data-loss-guard.test.ts" };
const tests = "test/integration/sqlite/data-loss-guard.test.ts";

const engine = { file: "src/client/engine.ts", tests: "test/unit/client/held-tokens.test.ts" };
const guard = { file: "src/drivers/data-loss-guard.ts", tests: "test/unit/drivers/data-loss-guard.test.ts" };

export const DATA_LOSS_MUTANTS: readonly Mutant[] = [
  {
    ...engine,
    name: "a claim that is restored after its lease has ended",
    find: 'state?.status === "held" && isHeld(state, now) ?',
    replace: 'state?.status === "held" ?',
  },
  {
    ...engine,
    name: "a claim that is restored after its machine slept through the rest of its lease",
    find: "const now = this.observe();\n    const state",
    replace: "const now = this.clock.now();\n    const state",
  },
  {
    ...guard,
    name: "a loss of data reported because a lease has ended",
    find: "answer.reason === undefined && this.#settings.heldTokens(id) !== null;",
    replace: "answer.reason === undefined;",
  },
  {
    file: "src/drivers/quorum/quorum-claim.ts",
    tests: "test/unit/drivers/quorum/quorum-claim.test.ts",
    name: "a vote that is restored after its lease has ended",
    find: 'state.kind === "held" && state.endsAt > now ? {',
    replace: 'state.kind === "held" ? {',
  },
  {
    ...postgres,
    file: "src/drivers/sql/postgres/sql/read_grace.sql",
    name: "on PostgreSQL, rows of a dump regarded as those that were there",
    find: " or i.writer <> i.row_writer",
    replace: "",
  },
  {
    ...postgres,
    file: "src/drivers/sql/postgres/sql/read_grace.sql",
    name: "on PostgreSQL, an emptied table regarded as the one that was there",
    find: "or i.file <> pg_catalog.pg_relation_filepath({claims_literal}::pg_catalog.regclass)",
    replace: "",
  },
  {
    ...postgres,
    file: "src/drivers/sql/postgres/sql/walk.sql",
    name: "on PostgreSQL, a waiting claim granted in a grace period",
    find: " or p_grace_ends > 0 then",
    replace: " then",
  },
  {
    ...mysql,
    file: "src/drivers/sql/mysql/sql/check_identity.sql",
    name: "on MariaDB, tables of a dump regarded as those that were there",
    find: "coalesce(v_created = v_table_created and v_next",
    replace: "coalesce(v_next",
  },
  {
    name: "on SQLite, an older state regarded as the one that was there",
    file: "src/drivers/sql/sqlite/identity.ts",
    find: "file === this.#file && sequence >= this.#seen",
    replace: "file === this.#file",
    tests,
  },
  {
    name: "on SQLite, a copy of a file regarded as the file",
    file: "src/drivers/sql/sqlite/identity.ts",
    find: "file === this.#file && sequence >= this.#seen",
    replace: "sequence >= this.#seen",
    tests,
  },
  {
    name: "on SQLite, a waiting claim granted in a grace period",
    file: "src/drivers/sql/sqlite/routines.ts",
    find: "stored.token === 0n && (graceEnds > 0 || !fits(usedPermits, stored))",
    replace: "stored.token === 0n && !fits(usedPermits, stored)",
    tests,
  },
  {
    name: "on SQLite, a new claim granted in a grace period",
    file: "src/drivers/sql/sqlite/routines.ts",
    find: "front.isWhole && isFree && graceEnds === 0",
    replace: "front.isWhole && isFree",
    tests,
  },
];
