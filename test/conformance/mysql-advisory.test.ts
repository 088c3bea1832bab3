import mysql, { createPool } from "mysql2";
import { afterAll, beforeAll } from "vitest";
import { mysqlAdvisory } from "../../src/drivers/sql/mysql/driver.ts";
import { registerAdvisoryConformance } from "../support/stores/advisory-conformance.ts";
import { countOtherConnections } from "../support/stores/mysql-advisory.ts";
import { withMariaDb } from "../support/stores/sql-fixture.ts";

withMariaDb((server) => {
  let admin: ReturnType<ReturnType<typeof mysql.createConnection>["promise"]>;

  const query = async (text: string) => {
    const [rows] = await admin.query(text);
    return rows as unknown as readonly Readonly<Record<string, unknown>>[];
  };

  beforeAll(() => {
    admin = mysql.createConnection({ uri: server().url }).promise();
  });

  afterAll(() => admin.end());

  registerAdvisoryConformance("MariaDB's named locks by mysql2", {
    permits: "one",
    driver: (options) => mysqlAdvisory(() => createPool({ uri: server().url }), options),
    // the server does not list locks: they end with the connections
    countLocks: () => countOtherConnections(query),
  });
});
