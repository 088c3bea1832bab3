import { expect, test } from "vitest";
import { openDatabase } from "../../../../src/drivers/sql/open.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

/** Opens within 5 s a database that refuses at once, and is up from then on. */
async function openWhenUpAt(upAt: number): Promise<{ readonly outcome: string; readonly tookMs: number }> {
  const clock = new FakeClock(0);
  const database = {
    name: "sql",
    open: async () => {
      if (clock.now() < upAt) throw new Error("sql: refused");
      return { close: async () => undefined };
    },
    inspect: async () => undefined,
  };
  let tookMs = 0;
  const opening = openDatabase(database, clock, 5_000).then(
    () => "open",
    (error: Error) => error.message,
  );
  const outcome = opening.finally(() => {
    tookMs = clock.now();
  });
  await clock.advance(10_000);
  return { outcome: await outcome, tookMs };
}

test("a database that refuses is tried until the time is over, and no longer", async () => {
  const { outcome, tookMs } = await openWhenUpAt(Number.POSITIVE_INFINITY);
  expect(outcome).toBe("sql: not reached within 5000 ms: refused");
  expect(tookMs).toBeGreaterThan(4_995);
  expect(tookMs).toBeLessThanOrEqual(5_000);
});

test("a database that is up shortly before the end is reached", async () => {
  // the pauses are random: each of these would have been within the last one
  for (let round = 0; round < 50; round++) expect((await openWhenUpAt(4_950)).outcome).toBe("open");
});
