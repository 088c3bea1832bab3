// What a call costs in pages, however many hold its key, and however many deleted rows an open transaction keeps.

import { Client } from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { toBucket } from "../../../src/drivers/sql/schema.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { expectReturnedPermits } from "../../support/stores/returned-permits.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const BUCKET = toBucket("key");
const TTL_MS = 600_000;
/** One claim in 16 does more than the others, by a character of its id. */
const PAIRS = 32;

withPostgres((server) => {
  let fixture: PostgresFixture;
  /** Its plans are made, and stay. */
  let session: Client;
  let ids = 0;
  beforeEach(async () => {
    fixture = await createPostgresFixture(server());
    await (await fixture.open()).driver.close();
    session = new Client(fixture.database.url);
    await session.connect();
  });
  afterEach(async () => {
    await session.end();
    await fixture.close();
  });

  const newId = (): string => `${String(++ids).padStart(7, "0")}${"abcdefghijklmnopqrstuvwxyz234567"[ids % 32]}`;
  const claimCall = (id: string, limit: number, wait = true): string =>
    `holdfast.holdfast_1_claim(${id}, 'key', ${BUCKET}, 1, ${limit}, ${TTL_MS}, 1, 0, ${wait}, '', 'inbox', 0)`;
  const releaseCall = (id: string): string =>
    `holdfast.holdfast_1_release(${id}, '${TTL_MS}', '0', '${BUCKET}', 'inbox', 0)`;
  const countPages = async (call: string): Promise<number> => {
    const { rows } = await session.query(`explain (analyze, buffers, format json) select ${call}`);
    const plans = rows[0]?.["QUERY PLAN"] as readonly { readonly Plan: Readonly<Record<string, number>> }[] | undefined;
    const plan = plans?.[0]?.Plan;
    return Number(plan?.["Shared Hit Blocks"]) + Number(plan?.["Shared Read Blocks"]);
  };
  const measure = async (round: () => Promise<number>): Promise<number> => {
    await round();
    let sum = 0;
    for (let index = 0; index < PAIRS; index++) sum += await round();
    return sum / PAIRS;
  };

  test("the pages of a grant, a release, a refusal and a recheck do not grow with the holders of the key", async () => {
    const limit = 2_000;
    const measureAll = async (): Promise<Record<string, number>> => {
      const waiting = newId();
      const pair = await measure(async () => {
        const id = newId();
        return (await countPages(claimCall(`'${id}'`, limit))) + (await countPages(releaseCall(`'${id}'`)));
      });
      const refusal = await measure(() => countPages(claimCall(`'${newId()}'`, 1, false)));
      await session.query(`select ${claimCall(`'${waiting}'`, 1)}`);
      const recheck = await measure(() => countPages(`holdfast.holdfast_1_renew('${waiting}', 'inbox', 0)`));
      await session.query(`select ${releaseCall(`'${waiting}'`)}`);
      return { pair, refusal, recheck };
    };
    const hold = (count: number) =>
      session.query(
        `select count(${claimCall(`'held' || ${++ids} || '-' || n`, limit)}) from generate_series(1, ${count}) n`,
      );
    await hold(10);
    const few = await measureAll();
    await hold(1_490);
    const many = await measureAll();
    for (const [call, pages] of Object.entries(many)) {
      expect(pages, `${call}: ${JSON.stringify({ few, many })}`).toBeLessThan(2 * (few[call] as number));
    }
    expect(await fixture.inspect()).toEqual([]);
  });

  describe("beside an open transaction that keeps all deleted rows", () => {
    let reader: Client;
    beforeEach(async () => {
      reader = new Client(fixture.database.url);
      await reader.connect();
      await reader.query("begin isolation level repeatable read");
      await reader.query("select count(*) from holdfast.holdfast_1_claims");
    });
    afterEach(() => reader.end());

    /** A pair: the key is taken, and given back by whom `released` names. */
    const PAIR_KINDS: readonly (readonly [string, { limit: number; isHandedOn: boolean; factor: number }])[] = [
      ["a free lock", { limit: 1, isHandedOn: false, factor: 5 }],
      ["a permit", { limit: 5, isHandedOn: false, factor: 5 }],
      ["a lock that is handed on to the next that waits", { limit: 1, isHandedOn: true, factor: 5 }],
      // both calls write the bucket's row, whose older versions are what grows
      ["permits that are never all free", { limit: 5, isHandedOn: true, factor: 8 }],
    ];

    test.each(PAIR_KINDS)(
      "the pages of a pair hardly grow with the pairs before: %s",
      async (_, { limit, isHandedOn, factor }) => {
        const runPairs = async (count: number): Promise<void> => {
          const first = ids + 1;
          ids += count;
          const idOf = (shift: number): string =>
            `lpad((n - ${shift})::text, 7, '0') || substr('abcdefghijklmnopqrstuvwxyz234567', n % 32 + 1, 1)`;
          await session.query(`do $$ begin for n in ${first} .. ${ids} loop
          perform ${claimCall(idOf(0), limit)}; perform ${releaseCall(idOf(0))}; commit; end loop; end $$`);
        };
        let last: string | null = null;
        const pair = async (): Promise<number> => {
          const id = newId();
          const claimed = await countPages(claimCall(`'${id}'`, limit));
          const released = isHandedOn ? last : id;
          last = id;
          return claimed + (released === null ? 0 : await countPages(releaseCall(`'${released}'`)));
        };
        const runHandedOn = async (count: number): Promise<void> => {
          for (let index = 0; index < count; index++) await pair();
        };
        const run = isHandedOn ? runHandedOn : runPairs;
        await run(100);
        const after100 = await measure(pair);
        await run(1_900);
        const after2000 = await measure(pair);
        expect(after2000, `after 100 pairs: ${after100}`).toBeLessThan(factor * after100);
        expect(await fixture.inspect()).toEqual([]);
      },
    );
  });

  test("a claim that is restored is found, although it is in front of where its key began", async () => {
    await session.query(`select ${claimCall("'holder'", 1)}, ${claimCall("'waiting'", 1)}`);
    await session.query("truncate holdfast.holdfast_1_claims");
    const lost = {
      ...{ id: "holder", key: "key", bucket: BUCKET, permits: 1, limit: 1, ttl: TTL_MS },
      wait: true,
      label: "",
    };
    const claims = JSON.stringify([{ ...lost, token: "1", tokens: 1, floor: "0" }]);
    await session.query("select holdfast.holdfast_1_restore($1, 'inbox', 1)", [claims]);
    const { rows } = await session.query(`select ${claimCall("'other'", 1)} as reply`);
    expect(rows[0]?.reply).toMatch(/^w /);
    expect(await fixture.inspect()).toEqual([]);
  });

  test("permits come back with a release, a revocation and the end of a lease, whoever else holds the key", async () => {
    const { driver } = await fixture.open();
    await expectReturnedPermits(driver);
    expect(await fixture.inspect()).toEqual([]);
  });
});
