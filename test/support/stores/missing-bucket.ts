/** A bucket without its row, as after a person has deleted rows: it has no lock and no last token. */

import { expect } from "vitest";
import { toBucket } from "../../../src/drivers/sql/schema.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { makeClaim } from "../claims.ts";
import { toReleases } from "../releases.ts";

interface MissingBucketSetup {
  /** Open. */
  readonly driver: Driver;
  /** The tables with their schema. */
  readonly tables: { readonly buckets: string; readonly claims: string };
  /** The column of the table of buckets with the highest token. Default: last_token. */
  readonly highestToken?: string;
  /** Whether each call locks the bucket's row: on SQLite only those that grant read it. */
  readonly hasRowLocks: boolean;
  run(text: string): Promise<unknown>;
  /** All claims, to see what has changed. */
  readClaims(): Promise<unknown>;
}

/** Every call that needs the row is refused and changes nothing. With the row, everything goes on. */
export async function expectRefusedWithoutBucket(setup: MissingBucketSetup): Promise<void> {
  const { driver, tables, highestToken = "last_token", run, readClaims } = setup;
  const [held, waiting] = [makeClaim("key"), makeClaim("key")];
  const answer = await driver.claim(held);
  if (answer.state !== "held") throw new Error(`the claim is ${answer.state}`);
  expect(await driver.claim(waiting)).toMatchObject({ state: "waiting" });
  // a claim that was renewed a moment ago is answered without a lock
  await run(`update ${tables.claims} set expires = expires - 15000000`);
  await run(`delete from ${tables.buckets} where bucket = ${toBucket("key")}`);
  const before = await readClaims();
  const calls = [
    () => driver.claim(makeClaim("key")),
    () => driver.release(toReleases(held)),
    () => driver.revoke?.([{ key: "key", token: answer.token, now: true }]),
    ...(setup.hasRowLocks ? [() => driver.renew([held]), () => driver.detach?.([held])] : []),
  ];
  for (const call of calls) await expect(call()).rejects.toThrow(/missing/);
  expect(await readClaims()).toEqual(before);
  await run(`insert into ${tables.buckets} (bucket, ${highestToken}) values (${toBucket("key")}, 0)`);
  expect(await driver.release(toReleases(held))).toEqual([true]);
  expect(await driver.renew([waiting])).toMatchObject([{ state: "held" }]);
}
