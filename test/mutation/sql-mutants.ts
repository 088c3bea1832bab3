/** Faults in the drivers of databases, and in rows with a version. */

import type { Mutant } from "./mutants.ts";

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
