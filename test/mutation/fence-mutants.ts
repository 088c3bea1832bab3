/** Faults in fence(): each lets a holder commit that is too late, or block others for ever. */

import type { Mutant } from "./mutants.ts";

const postgres = { file: "src/fencing/postgres-fence.ts", tests: "test/integration/postgres/fence.test.ts" };
const mysql = { file: "src/fencing/mysql-fence.ts", tests: "test/integration/mysql/fence.test.ts" };
const sqlite = { file: "src/fencing/sqlite-fence.ts", tests: "test/integration/sqlite/fence.test.ts" };

const guard = { file: "src/fencing/guard.ts", tests: "test/unit/fencing/guard.test.ts" };

export const FENCE_MUTANTS: readonly Mutant[] = [
  {
    ...guard,
    name: "a guard that forgets a key and then accepts its old tokens",
    find: "    if (token > this.#floor) this.#floor = token;\n",
    replace: "",
  },
  {
    ...guard,
    name: "a guard that compares tokens before the write ahead has ended",
    find: "(previous ?? Promise.resolve()).then(",
    replace: "Promise.resolve().then(",
  },
  {
    ...postgres,
    name: "on PostgreSQL, a fence that lowers the token",
    find: "do update set token = excluded.token where f.token <= excluded.token",
    replace: "do update set token = excluded.token",
  },
  {
    ...postgres,
    name: "on PostgreSQL, readers that do not keep a writer waiting",
    find: "for share of f`",
    replace: "`",
  },
  {
    ...postgres,
    name: "on PostgreSQL, tokens of readers taken from an old snapshot",
    find: "and slot > 0 for update) s",
    replace: "and slot > 0) s",
  },
  {
    ...postgres,
    name: "on PostgreSQL, a new row of a reader that a writer with an older snapshot does not see",
    find: "do update set has_shared = true where f.token <= $2::text::bigint\n",
    replace: "do update set has_shared = true where not f.has_shared\n",
  },
  {
    ...postgres,
    name: "on PostgreSQL, no idle time-out",
    find: ") then set_config('idle_in_transaction_session_timeout', $3::text, true)",
    replace: ") then null",
  },
  {
    name: "a client of pg, whose session may end, without a listener",
    file: "src/fencing/libraries.ts",
    find: "expectEndOfSession: () => ignoreErrors(client as unknown as Emitter),",
    replace: "",
    tests: "test/integration/postgres/fence.test.ts",
  },
  {
    ...mysql,
    name: "on MariaDB, an earlier token accepted",
    find: 'if (BigInt(row.token as string) > step.token) return "stale";',
    replace: "",
  },
  {
    ...mysql,
    name: "on MariaDB, a fence that obeys the session's limit of rows",
    find: 'const ONE_ROW = "limit 1";',
    replace: 'const ONE_ROW = "";',
  },
  {
    ...mysql,
    name: "on MariaDB, readers that do not wait for a later writer",
    find: '"lock in share mode", "and has_shared = 1"',
    replace: '"", "and has_shared = 1"',
  },
  {
    ...mysql,
    name: "on MariaDB, tokens of readers taken from an old snapshot",
    find: "} for update`,",
    replace: "}`,",
  },
  {
    ...sqlite,
    name: "on SQLite, a fence that accepts an earlier token",
    find: '"token <= excluded.token" : "true"',
    replace: '"true" : "true"',
  },
  {
    ...sqlite,
    name: "on SQLite, a writer that passes later readers",
    find: '["0", "slot = 1"]',
    replace: '["0", "slot = 2"]',
  },
  {
    name: "on Redis, a script that runs after a later holder's",
    file: "src/fencing/redis-fence.ts",
    find: "if isNewer(exclusive) or",
    replace: "if",
    tests: "test/integration/redis/fence.test.ts",
  },
];
