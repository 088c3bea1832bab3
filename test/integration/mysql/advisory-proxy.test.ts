// Named locks of MariaDB behind a proxy that gives statements to one session or another.

import { createPool } from "mysql2";
import { expect, test } from "vitest";
import { createAdvisoryDriver } from "../../../src/drivers/sql/advisory/driver.ts";
import { adaptMysqlClient } from "../../../src/drivers/sql/clients/detect.ts";
import type { DedicatedConnection, SqlClient } from "../../../src/drivers/sql/clients/types.ts";
import { createMysqlAdvisoryDialect } from "../../../src/drivers/sql/mysql/advisory-dialect.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import { readHolder } from "../../support/stores/mysql-advisory.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

withMariaDb((server) => {
  const dialect = createMysqlAdvisoryDialect();
  const nameOf = (key: string): string => String(dialect.toLock(key).values[0]);

  /** Two drivers whose connections are those of the proxy, once `isShared` is set: two sessions for all statements. */
  const openShared = async () => {
    const database = await server().freshDatabase();
    const proxy = { isShared: false, statements: 0 };
    const sessions: DedicatedConnection[] = [];
    const openDriver = async (): Promise<Driver> => {
      const create = async (): Promise<SqlClient> => {
        const client = adaptMysqlClient(createPool({ uri: database.url }));
        const connectDedicated = async (): Promise<DedicatedConnection> => {
          const own = (await client.connectDedicated?.()) as DedicatedConnection;
          sessions.push(own);
          // the proxy keeps its sessions
          const endings: (() => void)[] = [];
          return {
            sessionId: null,
            query: (text, values) => {
              const session = proxy.isShared ? sessions[proxy.statements++ % 2] : own;
              return (session as DedicatedConnection).query(text, values);
            },
            release: () => {
              for (const listener of endings.splice(0)) listener();
            },
            onEnd: (listener) => void endings.push(listener),
          };
        };
        return { ...client, connectDedicated };
      };
      const driver = createAdvisoryDriver(dialect, { create, isOwned: true, existing: null }, {});
      await driver.open(NO_EVENTS);
      return driver;
    };
    const drivers = [await openDriver(), await openDriver()] as const;
    const all = [...sessions];
    const dispose = async (): Promise<void> => {
      proxy.isShared = false;
      for (const driver of drivers) await driver.close();
      for (const session of all) session.release(true);
    };
    // each driver opens two connections, and keeps the first
    sessions.splice(0, sessions.length, sessions[0] as DedicatedConnection, sessions[2] as DedicatedConnection);
    return { database, drivers, proxy, dispose };
  };

  const sessionClaim = (key: string) => makeClaim(key, { ttlMs: "session", wait: false });

  test("a lock, a renewal and a release that meet another session do nothing there, and the lock is lost", async () => {
    for (const call of ["claim", "renew", "release", "release of several"] as const) {
      const { database, drivers, proxy, dispose } = await openShared();
      const [first, second] = drivers;
      const [claim, also, other] = [sessionClaim("key"), sessionClaim("also"), sessionClaim("other")];
      expect(await first.claim(claim)).toMatchObject({ state: "held" });
      expect(await first.claim(also)).toMatchObject({ state: "held" });
      // the next statement meets the session of the second driver
      proxy.isShared = true;
      proxy.statements = 1;
      if (call === "claim") await expect(first.claim(other)).rejects.toThrow(/pooler in transaction mode/);
      if (call === "renew") {
        expect(await first.renew([claim, also])).toMatchObject([{ state: "none" }, { state: "none" }]);
      }
      if (call === "release") expect(await first.release(toReleases(claim))).toEqual([false]);
      if (call === "release of several") expect(await first.release(toReleases(claim, also))).toEqual([false, false]);
      expect(await first.renew([claim, also])).toMatchObject([{ state: "none" }, { state: "none" }]);
      // its session was made free for others, although a connection that was closed did not end it
      for (const key of ["key", "also", "other"]) {
        await until(async () => (await readHolder(database.query, nameOf(key))) === null, {
          within: 5_000,
          what: `the end of the lock of ${key}`,
        });
      }
      // the one whose session it was is not accepted for ever, either
      proxy.statements = 0;
      await expect(second.claim(other)).rejects.toThrow(/pooler in transaction mode/);
      await dispose();
    }
  });
});
