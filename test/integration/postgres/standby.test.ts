// A standby that follows asynchronously: it is refused while it is one, and promoted it may lack the last grants.

import { afterEach, beforeEach, expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { stopProcess } from "../../../src/torture/processes/process-tree.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import { failOver } from "../../support/stores/lost-releases.ts";
import type { PostgresStandby } from "../../support/stores/postgres.ts";
import { queryPostgres, startPostgresStandby } from "../../support/stores/postgres.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import { findPostgresViolations } from "../../support/stores/sql-inspector.ts";

withPostgres((server) => {
  let fixture: PostgresFixture;
  let standby: PostgresStandby;
  let standbyUrl: string;
  beforeEach(async () => {
    fixture = await createPostgresFixture(server());
    standby = await startPostgresStandby(server());
    standbyUrl = fixture.database.url.replace(`:${server().port}/`, `:${standby.port}/`);
  });
  afterEach(async () => {
    await fixture.closeDrivers();
    await standby.dispose();
  });

  const query = (text: string) => queryPostgres(standbyUrl, text);

  test("promoted without the last release it has a holder that is gone: the process releases the lock again", async () => {
    const target = { host: "127.0.0.1", port: server().port };
    await using proxy = await tcpProxy(target);
    const { port } = proxy.address as { readonly port: number };
    const one = fixture.locks({}, { url: fixture.database.url.replace(`:${target.port}/`, `:${port}/`) });
    const lock = await one.acquire("key");
    await until(async () => (await countClaims()) === 1, { within: 10_000, what: "the claim on the standby" });
    const [sender] = await server().query("select pid::int from pg_stat_replication");
    stopProcess(Number(sender?.pid));
    expect(await lock.release()).toBe(true);

    await failOver(proxy, [one], async () => {
      await standby.promote();
      expect(await query("select key from holdfast.holdfast_1_claims")).toEqual([{ key: "key" }]);
      target.port = standby.port;
    });
    await until(async () => (await countClaims()) === 0, { within: 5_000, what: "the release" });
    process.kill(Number(sender?.pid), "SIGCONT");
  });

  // it crashes the primary
  test("it is refused; promoted it grants again, with higher tokens also on keys whose last grant it lacks", async () => {
    const { driver } = await fixture.open();
    const [copied, lost] = [makeClaim("copied"), makeClaim("lost")];
    const copiedAnswer = await driver.claim(copied);
    await until(async () => (await countClaims()) === 1, { within: 10_000, what: "the first claim on the standby" });
    await expect(fixture.open({ url: standbyUrl })).rejects.toMatchObject({
      name: "StoreRefusedError",
      message: expect.stringMatching(/this server is a standby, .*: connect to the primary server.*25006/),
    });
    // no commit is sent to it any more: as if it were far behind when the primary fails
    const [sender] = await server().query("select pid::int from pg_stat_replication");
    stopProcess(Number(sender?.pid));
    const lostAnswer = await driver.claim(lost);
    if (copiedAnswer.state !== "held" || lostAnswer.state !== "held") throw new Error("not held");
    await server().crash();
    await standby.promote();

    const promoted = await fixture.open({ url: standbyUrl });
    expect(await promoted.driver.renew([copied])).toMatchObject([{ state: "held", token: copiedAnswer.token }]);
    expect(await promoted.driver.claim(makeClaim("copied", { wait: false }))).toEqual({ state: "none" });
    // granted twice, as a database without synchronous replication has to; the token tells which of them is later
    const second = makeClaim("lost");
    const secondAnswer = await promoted.driver.claim(second);
    if (secondAnswer.state !== "held") throw new Error("not held");
    expect(secondAnswer.token).toBeGreaterThan(lostAnswer.token);
    expect(await promoted.driver.renew([lost])).toEqual([{ state: "none" }]);
    expect(await promoted.driver.release(toReleases(copied, second))).toEqual([true, true]);
    expect(await findPostgresViolations(query, { expectEmpty: true })).toEqual([]);
  });

  async function countClaims(): Promise<number> {
    // the schema arrives with the first claims
    const rows = await query("select count(*)::int as n from holdfast.holdfast_1_claims").catch(() => []);
    return Number(rows[0]?.n);
  }
});
