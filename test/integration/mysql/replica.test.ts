// A replica that follows asynchronously: it is refused while it is one, and promoted it may lack the last grants, which
// guardDataLoss notices.

import { connect } from "node:net";
import { createPool } from "mysql2";
import { afterEach, beforeEach, expect, onTestFinished, test } from "vitest";
import { mysqlAdvisory } from "../../../src/drivers/sql/mysql/driver.ts";
import { createLocks } from "../../../src/index.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { exclusive, expectLockKept, MAX_TTL_MS } from "../../support/stores/data-loss-scenario.ts";
import { failOver } from "../../support/stores/lost-releases.ts";
import type { MariaDbReplica } from "../../support/stores/mariadb.ts";
import { queryMariaDb, REPLICATED, startMariaDbReplica } from "../../support/stores/mariadb.ts";
import type { MysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { createMysqlFixture, markLongInUse } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";
import { findMySqlViolations } from "../../support/stores/sql-inspector.ts";

const WITHIN = 10_000;

withMariaDb(
  (server) => {
    let fixture: MysqlFixture;
    let replica: MariaDbReplica;
    let replicaUrl: string;
    /** Where new connections of the drivers go. */
    let port: number;
    beforeEach(async () => {
      fixture = createMysqlFixture(await server().freshDatabase());
      replica = await startMariaDbReplica(server());
      replicaUrl = fixture.database.url.replace(`:${server().port}/`, `:${replica.port}/`);
      ({ port } = server());
    });
    afterEach(async () => {
      await fixture.close();
      await replica.dispose();
    });

    const query = (text: string) => queryMariaDb(replicaUrl, text);
    const open = (): Promise<Driver> =>
      fixture.open({
        pool: { stream: () => connect(port, "127.0.0.1") },
        driver: { guardDataLoss: { maxTtlMs: MAX_TTL_MS }, warn: () => undefined },
      });

    test("one that accepts writes is recognized by a user without further rights: open() and doctor warn", async () => {
      await replica.catchUp();
      await query("set global read_only = 0");
      await query("create or replace user app identified by 'secret'");
      await query(`grant all on ${fixture.database.name}.* to app`);
      const warnings: string[] = [];
      const warn = (warning: string) => warnings.push(warning);
      const uri = fixture.database.urlOf("app", "secret").replace(`:${server().port}/`, `:${replica.port}/`);
      const driver = await fixture.open({ pool: { uri }, driver: { warn } });
      expect(warnings).toEqual([
        expect.stringMatching(/^mysql: the server is a replica, although it accepts writes: /),
      ]);
      expect(await driver.diagnose?.()).toContainEqual(expect.objectContaining({ name: "role", status: "warn" }));
      await replica.promote();
      expect(await driver.diagnose?.()).toContainEqual(expect.objectContaining({ name: "role", status: "ok" }));
    });

    test("promoted without the last release it has a holder that is gone: the process releases the lock again", async () => {
      const target = { host: "127.0.0.1", port: server().port };
      await using proxy = await tcpProxy(target);
      const address = proxy.address as { readonly port: number };
      const one = createLocks(fixture.driver({ pool: { stream: () => connect(address.port, "127.0.0.1") } }));
      const lock = await one.acquire("key");
      await replica.catchUp();
      await replica.stopFollowing();
      expect(await lock.release()).toBe(true);

      const readClaims = () =>
        query("select id from holdfast_4_claims union all select id from holdfast_4_buckets where form = 'lone'");
      await failOver(proxy, [one], async () => {
        await replica.promote();
        expect(await readClaims()).toHaveLength(1);
        target.port = replica.port;
      });
      await until(async () => (await readClaims()).length === 0, { within: WITHIN, what: "the release" });
      await one.close();
    });

    // the last one: it crashes the primary
    test("it is refused; promoted without the last grants it grants no lock of a live holder, which keeps it", async () => {
      const [holder, other] = [await open(), await open()];
      await markLongInUse(fixture.database);
      await replica.catchUp();
      expect(await query("select version from holdfast_layout")).toHaveLength(1);
      await expectRefused();
      await expectLockKept({
        holder,
        other,
        backUp: () => replica.stopFollowing(),
        async lose() {
          await server().crash();
          await replica.promote();
          ({ port } = replica);
          expect(await query("select * from holdfast_4_claims")).toEqual([]);
          for (const driver of [holder, other]) await reconnect(driver);
        },
        endGracePeriod: () => query("update holdfast_4_identity set grace_begins = 0, grace_ends = 0"),
        inspect: (isPaused) => findMySqlViolations(query, { isPaused }),
      });
    });

    async function expectRefused(): Promise<void> {
      const refusal = {
        name: "StoreRefusedError",
        message: expect.stringMatching(/the server is read-only: .*primary/),
      };
      await expect(fixture.open({ pool: { uri: replicaUrl } })).rejects.toMatchObject(refusal);
      const pool = createPool({ uri: replicaUrl });
      onTestFinished(() => pool.promise().end());
      const advisory = mysqlAdvisory(pool);
      await expect(advisory.open(NO_EVENTS)).rejects.toMatchObject(refusal);
      await advisory.close();
    }

    /** The first calls meet the end of the connections to the primary. */
    function reconnect(driver: Driver): Promise<unknown> {
      const canCall = (): Promise<boolean> =>
        driver.renew([exclusive()]).then(
          () => true,
          () => false,
        );
      return until(canCall, { within: WITHIN, what: "a connection to the promoted replica" });
    }
  },
  { settings: REPLICATED },
);
