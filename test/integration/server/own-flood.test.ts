/** A process whose own requests flood the lock server (test/support/own-flood.ts). */

import { test } from "vitest";
import { server as serverDriver } from "../../../src/drivers/server/driver.ts";
import { expectOwnFloodHarmless } from "../../support/own-flood.ts";
import { cleanUpAfterEach, startServer } from "../../support/server-fixture.ts";

cleanUpAfterEach();

test("its locks survive, and nothing is left", { timeout: 120_000 }, async () => {
  const { path } = await startServer();
  await expectOwnFloodHarmless({ ttlMs: 3_000, createDriver: () => serverDriver({ path }) });
});
