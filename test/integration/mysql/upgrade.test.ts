// An upgrade beside sessions that stay in a transaction, as a dump does: locks of other processes go on.

import type { Connection } from "mysql2/promise";
import { createConnection } from "mysql2/promise";
import { afterEach, beforeEach, expect, test } from "vitest";
import { listProcedures, parseRevision, REVISION } from "../../../src/drivers/sql/mysql/migration.ts";
import { toBucket } from "../../../src/drivers/sql/schema.ts";
import { createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import type { MysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { createMysqlFixture, listCalls, lockBucket } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

const TTL_MS = 2_000;

withMariaDb((server) => {
  let fixture: MysqlFixture;
  let session: Connection;
  beforeEach(async () => {
    fixture = createMysqlFixture(await server().freshDatabase());
    await (await fixture.open()).close();
    session = await createConnection({ uri: fixture.database.url });
  });
  afterEach(async () => {
    await session.end();
    await fixture.close();
    await fixture.database.drop();
  });

  /** Makes the procedures those of an earlier version. */
  const makeOlder = (): ReturnType<typeof fixture.database.query> =>
    fixture.database.query(
      `update mysql.proc set comment = replace(comment, 'revision ${REVISION},', 'revision ${REVISION - 1},') where db = database()`,
    );
  const readRevisions = async (): Promise<ReadonlySet<number>> => {
    const rows = await fixture.database.query("select comment from mysql.proc where db = database()");
    return new Set(rows.map(({ comment }) => parseRevision(comment).revision));
  };

  test("procedures are replaced beside a dump and a session that stays in a transaction with a call, and no lock of an older process is lost", async () => {
    const locks = createLocks(fixture.driver(), { ttl: `${TTL_MS}ms` });
    const held = await Promise.all(Array.from({ length: 20 }, (_, index) => locks.acquire(`key ${index}`)));
    await makeOlder();
    await session.query("start transaction with consistent snapshot");
    for (const table of ["layout", "4_buckets", "4_claims", "4_tombstones", "4_identity"]) {
      await session.query(`select * from holdfast_${table}`);
    }
    for (const name of listProcedures("holdfast")) await session.query(`show create procedure ${name}`);
    await expect(session.query("call holdfast_4_read_owned('inbox')")).rejects.toThrow("transaction");
    const driver = await fixture.open();
    expect(await readRevisions()).toEqual(new Set([REVISION]));
    await driver.close();
    await new Promise((resolve) => setTimeout(resolve, 1.5 * TTL_MS));
    for (const lock of held) lock.throwIfLost();
    await session.query("rollback");
    await locks.close();
    expect(await fixture.violations()).toEqual([]);
  });

  test("procedures are replaced beside a session that keeps the row of a bucket locked and a call that waits for it", async () => {
    const locks = createLocks(fixture.driver(), { ttl: `${TTL_MS}ms` });
    const held = await Promise.all(Array.from({ length: 20 }, (_, index) => locks.acquire(`key ${index}`)));
    const locker = await lockBucket(fixture.pool(), toBucket("locked"));
    const waiting = createLocks(fixture.driver(), { ttl: "60s" }).acquire("locked");
    await until(async () => (await listCalls(fixture.database)).length > 0, {
      within: 5_000,
      what: "a call that waits",
    });
    await makeOlder();
    let [isOver, longestMs] = [false, 0];
    const opening = fixture.open();
    const noteEnd = (): boolean => (isOver = true);
    void opening.then(noteEnd, noteEnd);
    while (!isOver) {
      const startedAt = performance.now();
      await locks.using("free", async () => undefined);
      longestMs = Math.max(longestMs, performance.now() - startedAt);
    }
    await opening;
    expect(await readRevisions()).toEqual(new Set([REVISION]));
    expect(longestMs).toBeLessThan(TTL_MS);
    for (const lock of held) lock.throwIfLost();
    await locker.end();
    await (await waiting).release();
    await locks.close();
    expect(await fixture.violations()).toEqual([]);
  });
});
