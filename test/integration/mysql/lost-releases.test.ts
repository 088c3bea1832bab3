/** Releases that a promoted replica has missed: the database has claims that are gone, and their processes release them again. */

import { afterEach, beforeEach, expect, test } from "vitest";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { MysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { createMysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";
import type { TcpProxy } from "../../support/tcp-proxy.ts";
import { tcpProxy } from "../../support/tcp-proxy.ts";
import { until } from "../../support/until.ts";

const KEY = "a key with ünïcode";
/** Much less than a lease, which is 30 s, and than the interval of its renewal. */
const SOON_MS = 5_000;
const CLAIMS = "holdfast_2_claims";
/** The row of a bucket has the claim that is alone in it. */
const BUCKETS = "holdfast_2_buckets";

withMariaDb((server) => {
  let fixture: MysqlFixture;
  let clients: Locks[];
  let proxy: TcpProxy;
  beforeEach(async () => {
    fixture = createMysqlFixture(await server().freshDatabase());
    proxy = await tcpProxy({ host: "127.0.0.1", port: server().port });
    clients = [];
  });
  afterEach(async () => {
    for (const locks of clients) await locks.close();
    await fixture.close();
    await proxy.close();
  });

  const query = (text: string) => fixture.database.query(text);
  const openClient = (session: readonly string[] = []): Locks => {
    const { port } = proxy.address as { readonly port: number };
    const uri = fixture.database.url.replace(`:${server().port}/`, `:${port}/`);
    const locks = createLocks(fixture.driver({ session, pool: { uri } }));
    clients.push(locks);
    return locks;
  };
  const countWaiting = async (): Promise<number> =>
    Number((await query(`select count(*) as n from ${CLAIMS} where token = 0`))[0]?.n);
  async function keepClaims(): Promise<void> {
    await query(`create table kept_claims as select * from ${CLAIMS}`);
    await query(`create table kept_buckets as select * from ${BUCKETS}`);
  }

  /** What a fail-over does: for a moment nobody can connect, in which these clients make calls, and the claims are those of before. */
  async function failOver(...calling: readonly Locks[]): Promise<void> {
    proxy.refuseConnections(true);
    proxy.reset();
    const failed = calling.map((locks) => new Promise<unknown>((resolve) => void locks.on("storeDown", resolve)));
    const calls = calling.map(use);
    await query(`insert ignore into ${CLAIMS} select * from kept_claims`);
    await query(`replace into ${BUCKETS} select * from kept_buckets`);
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

  test("of a holder, on connections without autocommit", async () => {
    const [one, other] = [openClient(["set autocommit = 0"]), openClient()];
    const lock = await one.acquire(KEY);
    await use(other);
    await keepClaims();
    await lock.release();
    await failOver(one, other);
    await expectFreeSoon(other);
    expect(await query(`select id from ${CLAIMS} union all select id from ${BUCKETS} where mode = 1`)).toEqual([]);
    expect(await query("select * from information_schema.innodb_trx")).toEqual([]);
  });

  test("of a waiter, whose holder is gone, too", async () => {
    const [one, other, third] = [openClient(), openClient(), openClient()];
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
});
