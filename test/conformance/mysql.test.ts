import { createPool } from "mysql2";
import { mysql } from "../../src/drivers/sql/mysql/driver.ts";
import { registerMysqlConformance } from "../support/stores/mysql-conformance.ts";

registerMysqlConformance("MariaDB by mysql2", ({ url }) =>
  mysql(() => createPool({ uri: url, connectionLimit: 4 }), { silenceWarnings: ["durability"] }),
);
