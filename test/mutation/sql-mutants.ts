/** Faults in the drivers of databases, and in rows with a version. */

import type { Mutant } from "./mutants.ts";

const postgres = "src/drivers/sql/postgres/statements.ts";
const procedures = { file: "src/drivers/sql/mysql/statements.ts" };

export const SQL_MUTANTS: readonly Mutant[] = [
  {
    ...procedures,
    name: "on MariaDB, a bucket that is free and not locked",
    find: " FOR UPDATE SKIP LOCKED",
    replace: "",
    tests: "test/integration/mysql/concurrent-claims.test.ts",
  },
  {
    ...procedures,
    name: "on MariaDB, a call that goes on while another one has locked the bucket",
    find: "WHERE bucket = p_bucket FOR UPDATE;",
    replace: "WHERE bucket = p_bucket;",
    tests: "test/integration/mysql/concurrent-claims.test.ts",
  },
  {
    ...procedures,
    name: "on MariaDB, a bucket without its row, so without a lock",
    find: "IF o_last IS NULL THEN\\n      SIGNAL",
    replace: "IF FALSE THEN\\n      SIGNAL",
    tests: "test/integration/mysql/server-requirements.test.ts",
  },
  {
    ...procedures,
    name: "on MariaDB, a claim call that arrives after its release and enters the queue",
    find: "IF v_in_flight OR NOT v_was_there THEN",
    replace: "IF NOT v_was_there THEN",
    tests: "test/integration/mysql/connection-faults.test.ts",
  },
  {
    ...procedures,
    name: "on MariaDB, a release that reports a revoked claim as held",
    find: "WHERE id = v_id AND state = 'o' AND expires > v_now;",
    replace: "WHERE id = v_id;",
    tests: "test/conformance/mysql.test.ts",
  },
  {
    name: "on SQLite, a caller that keeps the event loop for itself",
    file: "src/drivers/sql/sqlite/transactions.ts",
    find: "if (now - this.#turnStartedAt < MAX_TURN_MS) queue",
    replace: "if (now >= 0) queue",
    tests: "test/integration/sqlite/handles.test.ts",
  },
  {
    name: "on PostgreSQL, a bucket that is read without its lock",
    file: postgres,
    find: "order by bucket for no key update",
    replace: "order by bucket",
    tests: "test/integration/postgres/faults.test.ts",
  },
  {
    name: "on PostgreSQL, functions that run at any isolation level",
    file: postgres,
    find: "if pg_catalog.current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then",
    replace: "if false then",
    tests: "test/integration/postgres/isolation.test.ts",
  },
  {
    name: "on PostgreSQL, tokens that follow only the clock",
    file: postgres,
    find: "greatest(last_token + 1, p_floor, v_now)",
    replace: "greatest(p_floor, v_now)",
    tests: "test/integration/postgres/clock.test.ts",
  },
  {
    name: "on PostgreSQL, deleted rows that stay in the pages until autovacuum",
    file: postgres,
    find: "with (autovacuum_vacuum_scale_factor = 0,",
    replace: "with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0,",
    tests: "test/integration/postgres/table-bloat.test.ts",
  },
  {
    name: "on PostgreSQL, the end of the connection that listens kept from the claims that wait",
    file: "src/drivers/sql/postgres/listener.ts",
    find: "    this.#failureCount++;\n    this.#events.onMissed();\n",
    replace: "    this.#failureCount++;\n",
    tests: "test/integration/postgres/listener.test.ts",
  },
  {
    name: "on MariaDB, tokens that follow only the clock",
    ...procedures,
    find: "GREATEST(v_last + 1, p_floor, v_now)",
    replace: "GREATEST(p_floor, v_now)",
    tests: "test/integration/mysql/clock-steps.test.ts",
  },
  {
    name: "on MariaDB, a claim that is granted by the walk with a token of the clock",
    ...procedures,
    find: "GREATEST(v_last + 1, v_floor, p_now)",
    replace: "GREATEST(v_floor, p_now)",
    tests: "test/integration/mysql/clock-steps.test.ts",
  },
  {
    name: "on PostgreSQL, operators of another role that run with the rights of the caller",
    file: "src/drivers/sql/postgres/migration.ts",
    find: "set search_path = pg_catalog, pg_temp ",
    replace: "",
    tests: "test/integration/postgres/requirements.test.ts",
  },
  {
    name: "a row with a version: what the change has made of the version is compared",
    file: "src/optimistic/versioned-row.ts",
    find: "readVersions.get(row) ?? ",
    replace: "",
    tests: "test/integration/sqlite/optimistic.test.ts",
  },
];
