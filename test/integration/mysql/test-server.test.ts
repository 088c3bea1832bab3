// The MariaDB that the other tests of this folder run against.

import { createConnection } from "mysql2/promise";
import { describe } from "vitest";
import { queryMariaDb, startMariaDb } from "../../support/stores/mariadb.ts";
import { withMariaDb, withMariaDbClock } from "../../support/stores/sql-fixture.ts";
import type { ServerKind } from "../../support/stores/test-server-tests.ts";
import { testReportOfFaults, testServer, testServerClock } from "../../support/stores/test-server-tests.ts";

const MARIADB: ServerKind = {
  settingsQuery: "select @@tx_isolation as isolation, cast(@@innodb_flush_log_at_trx_commit as char) as sync",
  settings: {
    asked: { isolation: "SERIALIZABLE", sync: "2" },
    byDefault: { isolation: "REPEATABLE-READ", sync: "1" },
  },
  bigintQuery: "select cast(? as unsigned) as n",
  clockQuery: "select cast(timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) div 1000 as char) as ms",
  processes: 1,
  async createUser({ name, query }) {
    await query("create user app identified by 'pw'");
    await query(`grant all on ${name}.* to app`);
  },
  readUser: (url) => queryMariaDb(url, "select current_user() as name"),
  userName: "app@%",
  start: startMariaDb,
  async open(url) {
    const connection = await createConnection(url);
    return { run: (text) => connection.query(text), close: () => connection.destroy() };
  },
};

withMariaDb((server) => testServer(server, MARIADB), { settings: { "transaction-isolation": "SERIALIZABLE" } });

describe("with a clock of its own", () => {
  withMariaDbClock((server, clock) => testServerClock(server, clock, MARIADB.clockQuery));
});

testReportOfFaults(MARIADB);
