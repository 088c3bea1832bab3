// 1,000 users, 100 of them twice, want 100 bonuses at the same moment, on PostgreSQL.

import { beforeAll, expect, test } from "vitest";
import { BONUS_EXAMPLE_MS, runBonusExample } from "../../support/bonus-example.ts";
import { cliSandbox } from "../../support/cli-sandbox.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const sandbox = cliSandbox();

withPostgres((server) => {
  let url = "";
  beforeAll(async () => {
    ({ url } = await server().freshDatabase());
  });

  test(
    "an optimistic version, a lock and a fenced transaction sell each bonus once, and to no user twice",
    async () => {
      const strategies = ["optimistic version", "lock", "fenced transaction"];
      const rows = await runBonusExample(sandbox, url, strategies);
      for (const [index, row] of rows.entries()) {
        const [name, won, soldOut, repeated, retried, ...rest] = row.split(" | ");
        expect([name, won, ...rest]).toEqual([strategies[index], "100", "0"]);
        // a second request is repeated, or sold out if the first one was
        expect(Number(soldOut) + Number(repeated)).toBe(1_000);
        expect(Number(repeated)).toBeGreaterThan(0);
        expect(Number(retried) > 0).toBe(name === "optimistic version");
      }
      expect(rows).toHaveLength(3);
    },
    BONUS_EXAMPLE_MS,
  );

  test(
    "the naive way oversells in five of five runs",
    async () => {
      const rows = await runBonusExample(
        sandbox,
        url,
        Array.from({ length: 5 }, () => "naive"),
      );
      expect(rows).toHaveLength(5);
      for (const row of rows) expect(row).toMatch(/^naive \| .* \| OVERSOLD by [1-9]\d*$/);
    },
    BONUS_EXAMPLE_MS,
  );
});
