/** Releases that a promoted standby has missed: the database has claims that are gone, and their processes release them again. */

import { afterEach, beforeEach, expect, test } from "vitest";
import type { Locks, LocksOptions } from "../../../src/index.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import type { TcpProxy } from "../../support/tcp-proxy.ts";
import { tcpProxy } from "../../support/tcp-proxy.ts";
import { until } from "../../support/until.ts";

const KEY = "key";
/** Much less than a lease, which is 30 s, and than the interval of its renewal. */
const SOON_MS = 5_000;
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

  /** What a fail-over does: for a moment nobody can connect, in which these clients make calls, and the claims are those of before. */
  async function failOver(...calling: readonly Locks[]): Promise<void> {
    proxy.refuseConnections(true);
    proxy.reset();
    const failed = calling.map((locks) => new Promise<unknown>((resolve) => void locks.on("storeDown", resolve)));
    const calls = calling.map(use);
    await query(`insert into ${CLAIMS} select * from kept on conflict do nothing`);
    await Promise.all(failed);
    proxy.refuseConnections(false);
    await Promise.all(calls);
  }

  /** Who wants the key has it long before the lease of the lost claim ends. */
  async function expectFreeSoon(locks: Locks): Promise<void> {
    const lock = await locks.acquire(KEY, { wait: SOON_MS });
    await lock.release();
  }

  const use = (locks: Locks): Promise<void> => locks.using("third", () => undefined);

  test.each([
    ["64", 64],
    ["1", 1],
  ])("of a holder with handoffs %s", async (_, handoffs) => {
    const [one, other] = [openClient({ handoffs }), fixture.locks()];
    const lock = await one.acquire(KEY);
    await use(other);
    await keepClaims();
    await lock.release();
    await failOver(one);
    await expectFreeSoon(other);
    expect(await query(`select key from ${CLAIMS}`)).toEqual([]);
  });

  test("of a holder that is silent, and listens", async () => {
    const [one, other] = [openClient({}, true), fixture.locks()];
    const lock = await one.acquire(KEY);
    await use(other);
    await keepClaims();
    await lock.release();
    await failOver();
    await expectFreeSoon(other);
  });

  test("of a waiter, whose holder is gone, too", async () => {
    const [one, other, third] = [openClient(), openClient(), fixture.locks()];
    await use(third);
    const lock = await one.acquire(KEY);
    const controller = new AbortController();
    const waiting = other.acquire(KEY, { signal: controller.signal });
    await until(async () => (await countWaiting()) === 1, { within: SOON_MS, what: "the waiter" });
    await keepClaims();
    controller.abort(new Error("given up"));
    await expect(waiting).rejects.toThrow("given up");
    await lock.release();
    await until(async () => (await countWaiting()) === 0, { within: SOON_MS, what: "its end" });
    await failOver(one, other);
    await expectFreeSoon(third);
  });

  test("a lock that was detached stays, and so does one that is held", async () => {
    const one = openClient();
    const [detached, held] = [await one.acquire(KEY), await one.acquire("held")];
    await detached.detach();
    await keepClaims();
    await failOver(one);
    for (let times = 0; times < 3; times++) await use(one);
    expect(await query(`select key from ${CLAIMS} order by key`)).toEqual([{ key: "held" }, { key: KEY }]);
    expect(await held.release()).toBe(true);
  });
});
