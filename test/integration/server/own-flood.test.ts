/** A process whose own requests flood the lock server (test/support/own-flood.ts). */

import { test } from "vitest";
import { lockServer } from "../../../src/drivers/server/driver.ts";
import { expectOwnFloodHarmless } from "../../support/own-flood.ts";
import { cleanUpAfterEach, startServer } from "../../support/server-fixture.ts";

cleanUpAfterEach();

test("its locks survive, and nothing is left", { timeout: 120_000 }, async () => {
  const { path, httpAddress } = await startServer({ http: "127.0.0.1:0" });
  await expectOwnFloodHarmless({
    ttlMs: 3_000,
    createDriver: () => lockServer({ path }),
    async countCalls() {
      const text = await (await fetch(`${httpAddress}/metrics`)).text();
      const counts = [...text.matchAll(/^holdfast_claim_events_total\{.*\} (\d+)$/gm)].map(([, count]) =>
        Number(count),
      );
      return counts.reduce((total, count) => total + count, 0);
    },
  });
});
