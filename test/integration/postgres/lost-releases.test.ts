/** Releases that a promoted standby has missed: the database has claims that are gone, and their processes release them again. */

import { afterEach, beforeEach, expect, test } from "vitest";
import type { Locks, LocksOptions } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import type { TcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { expectFreeSoon, failOver, SOON_MS, useOtherLock } from "../../support/stores/lost-releases.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const KEY = "key";
const CLAIMS = "holdfast.holdfast_1_claims";

withPostgres((server) => {
  let fixture: PostgresFixture;
  let proxy: TcpProxy;
  beforeEach(async () => {
    fixture = await createPostgresFixture(server());
    proxy = await tcpProxy({ host: "127.0.0.1", port: server().port });
  });
  afterEach(async () => {
    await fixture.close();
    await proxy.close();
  });

  const openClient = (options: LocksOptions = {}, recall = false): Locks => {
    const { port } = proxy.address as { readonly port: number };
    const url = fixture.database.url.replace(`:${server().port}/`, `:${port}/`);
    return fixture.locks(options, { url, recall });
  };

  const query = (text: string) => fixture.database.query(text);
  const countWaiting = async (): Promise<number> =>
    Number((await query(`select count(*)::int as n from ${CLAIMS} where token = 0`))[0]?.n);
  const keepClaims = () => query(`create table kept as select * from ${CLAIMS}`);

  /** Puts the claims back as they were kept: the new primary has missed what followed. */
  const bringBack = () => query(`insert into ${CLAIMS} select * from kept on conflict do nothing`);

  test.each([["process"], ["strict"]] as const)("of a holder in order %s", async (order) => {
    const [one, other] = [openClient({ order }), fixture.locks()];
    const lock = await one.acquire(KEY);
    await useOtherLock(other);
    await keepClaims();
    await lock.release();
    await failOver(proxy, [one], bringBack);
    await expectFreeSoon(other, KEY);
    expect(await query(`select key from ${CLAIMS}`)).toEqual([]);
  });

  test("of a holder that is silent, and listens", async () => {
    const [one, other] = [openClient({}, true), fixture.locks()];
    const lock = await one.acquire(KEY);
    await useOtherLock(other);
    await keepClaims();
    await lock.release();
    await failOver(proxy, [], bringBack);
    await expectFreeSoon(other, KEY);
  });

  test("of a waiter, whose holder is gone, too", async () => {
    const [one, other, third] = [openClient(), openClient(), fixture.locks()];
    await useOtherLock(third);
    const lock = await one.acquire(KEY);
    const controller = new AbortController();
    const waiting = other.acquire(KEY, { signal: controller.signal });
    await until(async () => (await countWaiting()) === 1, { within: SOON_MS, what: "the waiter" });
    await keepClaims();
    controller.abort(new Error("given up"));
    await expect(waiting).rejects.toThrow("given up");
    await lock.release();
    await until(async () => (await countWaiting()) === 0, { within: SOON_MS, what: "its end" });
    await failOver(proxy, [one, other], bringBack);
    await expectFreeSoon(third, KEY);
  });

  test("a lock that was detached stays, and so does one that is held", async () => {
    const one = openClient();
    const [detached, held] = [await one.acquire(KEY), await one.acquire("held")];
    await detached.detach();
    await keepClaims();
    await failOver(proxy, [one], bringBack);
    for (let times = 0; times < 3; times++) await useOtherLock(one);
    expect(await query(`select key from ${CLAIMS} order by key`)).toEqual([{ key: "held" }, { key: KEY }]);
    expect(await held.release()).toBe(true);
  });
});
