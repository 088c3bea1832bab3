// 1,000 users, 100 of them twice, want 100 bonuses at the same moment, on MariaDB.

import { testBonusExample } from "../../support/bonus-example.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

withMariaDb((server) => testBonusExample(server));
