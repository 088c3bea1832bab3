// 1,000 users, 100 of them twice, want 100 bonuses at the same moment, on PostgreSQL.

import { testBonusExample } from "../../support/bonus-example.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

withPostgres((server) => testBonusExample(server));
