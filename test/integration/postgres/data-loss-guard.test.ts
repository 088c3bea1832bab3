/**
 * The option guardDataLoss on a PostgreSQL that is restored from backups of every kind, restarted, or followed by a standby that
 * lacks its last commits.
 */

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { Client, Pool } from "pg";
import { afterEach, beforeEach, expect, test } from "vitest";
import { postgres } from "../../../src/drivers/sql/postgres/driver.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { stopProcess } from "../../../src/torture/processes/process-tree.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { withHeldTokens } from "../../support/held-tokens.ts";
import { expectHeld } from "../../support/server-fixture.ts";
import type { LossScenario } from "../../support/stores/data-loss-scenario.ts";
import {
  exclusive,
  expectHoldersInOrder,
  expectLockKept,
  expectNoLossAfterEnd,
  expectNotRestoredAfterSleep,
  MAX_TTL_MS,
  PAUSE,
} from "../../support/stores/data-loss-scenario.ts";
import { queryPostgres, startPostgresStandby } from "../../support/stores/postgres.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture, forgetIdentity, markLongInUse } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import { findPostgresViolations } from "../../support/stores/sql-inspector.ts";

const TABLES = ["claims", "buckets", "tombstones", "identity"].map((word) => `holdfast.holdfast_1_${word}`);

withPostgres((server) => {
  let fixture: PostgresFixture;
  beforeEach(async () => {
    fixture = await createPostgresFixture(server());
  });
  afterEach(() => fixture.close());

  const query = (text: string) => fixture.database.query(text);
  const open = async (maxTtlMs = MAX_TTL_MS): Promise<Driver> =>
    (await fixture.open({ guardDataLoss: { maxTtlMs } })).driver;
  const endGracePeriod = (queryTables: (text: string) => Promise<unknown> = query) => markLongInUse(queryTables);

  /** Lists nothing, on connections that may have ended. */
  const reconnect = async (...drivers: readonly Driver[]): Promise<void> => {
    for (const driver of drivers) {
      const isConnected = (): Promise<boolean> =>
        driver.list({ prefix: "none" }, { max: 1 }).then(
          () => true,
          () => false,
        );
      await until(isConnected, { within: 20_000, what: "a connection" });
    }
  };

  async function createScenario(steps: {
    readonly backUp?: () => Promise<unknown>;
    readonly lose: () => Promise<unknown>;
  }): Promise<LossScenario> {
    const holder = await open();
    await markLongInUse(query);
    const other = await open();
    const reconnected = (step: () => Promise<unknown>) => async () => {
      await step();
      await reconnect(holder, other);
    };
    return {
      holder,
      other,
      backUp: reconnected(steps.backUp ?? (async () => undefined)),
      lose: reconnected(steps.lose),
      endGracePeriod: () => endGracePeriod(),
      inspect: (isPaused) => findPostgresViolations(query, { isPaused }),
    };
  }

  const dump = (...options: readonly string[]): string =>
    execFileSync("pg_dump", [...options, "-n", "holdfast", fixture.database.url], {
      encoding: "utf8",
      maxBuffer: 64 * 1024 * 1024,
    });
  const restore = (text: string): void => {
    execFileSync("psql", ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null", fixture.database.url], {
      input: text,
    });
  };
  /** Ends all sessions: nobody may be connected to a database that is copied. */
  const endSessions = () =>
    server().query(
      `select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = '${fixture.database.name}'`,
    );

  let kept = "";
  const data = (): string => join(server().folder, "data");
  const copy = (): string => join(server().folder, "copy");
  const losses: readonly (readonly [string, () => Parameters<typeof createScenario>[0]])[] = [
    [
      "a dump that is restored with its tables",
      () => ({
        backUp: async () => {
          kept = dump("--clean", "--if-exists");
        },
        lose: async () => restore(kept),
      }),
    ],
    [
      "a dump whose rows replace those of the tables",
      () => ({
        backUp: async () => {
          kept = dump("--data-only", ...TABLES.flatMap((table) => ["-t", table]));
        },
        lose: async () => restore(`begin; ${TABLES.map((table) => `delete from ${table};`).join(" ")} ${kept} commit;`),
      }),
    ],
    ["an emptied table", () => ({ lose: () => query("truncate holdfast.holdfast_1_claims") })],
    [
      "a database that is dropped and created again by the next open()",
      () => ({
        lose: async () => {
          const { name } = fixture.database;
          await server().query(`drop database ${name} with (force)`);
          await server().query(`create database ${name}`);
          await open();
        },
      }),
    ],
    [
      "a copy of the database that takes its place",
      () => ({
        backUp: async () => {
          await endSessions();
          await server().query(`create database backup template ${fixture.database.name}`);
        },
        lose: async () => {
          await server().query(`drop database ${fixture.database.name} with (force)`);
          await server().query(`alter database backup rename to ${fixture.database.name}`);
        },
      }),
    ],
    [
      "a copy of the server's files",
      () => ({
        backUp: async () => {
          await server().stop();
          execFileSync("cp", ["-a", data(), copy()]);
          await server().start();
          await markLongInUse(query);
        },
        lose: async () => {
          await server().stop();
          execFileSync("rm", ["-rf", data()]);
          execFileSync("mv", [copy(), data()]);
          await server().start();
        },
      }),
    ],
  ];
  test.each(losses)("%s: no lock of a live holder is granted, which keeps it with its token", async (_, makeSteps) => {
    await expectLockKept(await createScenario(makeSteps()));
  });

  test("rows that only vanish are missed by their holder: a grace period begins when it renews", async () => {
    const scenario = await createScenario({ lose: () => query("delete from holdfast.holdfast_1_claims") });
    await expectLockKept({ ...scenario, isSeenByHolderOnly: true });
  });

  test("of holders that could not have held together those with the lowest tokens end; the others stay, in order", async () => {
    const scenario = await createScenario({
      backUp: async () => {
        kept = dump("--clean", "--if-exists");
      },
      lose: async () => restore(kept),
    });
    await expectHoldersInOrder(scenario);
  });

  test("a claim that is gone after the end of its lease is not reported as lost", async () => {
    const [{ driver: late }, { driver: other }] = [await fixture.open(), await fixture.open()];
    await expectNoLossAfterEnd({ late, other, warnings: fixture.warnings });
  });

  test("a holder that slept beyond the end of its lease does not restore its claim", async () => {
    const clock = new FakeClock();
    const { driver: sleeper } = await fixture.open({ guardDataLoss: { maxTtlMs: MAX_TTL_MS }, clock });
    await markLongInUse(query);
    await expectNotRestoredAfterSleep({
      sleeper,
      clock,
      other: await open(),
      lose: () => query("truncate holdfast.holdfast_1_claims, holdfast.holdfast_1_tombstones"),
      inspect: () => findPostgresViolations(query, { isPaused: true }),
    });
  });

  test("two faults at once: the connection of a holder ends while it restores its claim, and then the server restarts", async () => {
    const holder = await open();
    await markLongInUse(query);
    const first = exclusive();
    const { token } = expectHeld(await holder.claim(first));
    await query("truncate holdfast.holdfast_1_claims");
    const other = await open();
    const blocker = new Client(fixture.database.url);
    await blocker.connect();
    await blocker.query("begin");
    await blocker.query("select 1 from holdfast.holdfast_1_buckets for update");
    const renewal = holder.renew([first]).catch(() => "failed");
    const restoring = "from pg_stat_activity where wait_event_type = 'Lock' and query ~ '_restore'";
    await until(async () => (await query(`select 1 ${restoring}`)).length > 0, { within: 10_000, what: "the restore" });
    await query(`select pg_terminate_backend(pid, 5000) ${restoring}`);
    await blocker.end();
    expect(await renewal).toBe("failed");
    await server().restart();
    await reconnect(other, holder);
    expect(await other.claim(exclusive({ wait: false }))).toEqual({ state: "none", paused: PAUSE });
    expect((await holder.renew([first]))[0]).toMatchObject({ state: "held", token });
    expect(await findPostgresViolations(query, { isPaused: true })).toEqual([]);
  });

  test("a standby that lacks the last grant and is promoted: its holder restores it there", {
    timeout: 60_000,
  }, async () => {
    const standby = await startPostgresStandby(server());
    const standbyUrl = fixture.database.url.replace(`:${server().port}/`, `:${standby.port}/`);
    const pools = [1, 2].map(() => new Pool({ connectionString: fixture.database.url, max: 4 }));
    try {
      const drivers = pools.map((pool) => {
        pool.on("error", () => undefined);
        const guarded = postgres(pool, {
          guardDataLoss: { maxTtlMs: MAX_TTL_MS },
          silenceWarnings: ["durability", "guardDataLoss", "failover"],
        });
        return withHeldTokens(guarded);
      });
      const [holder, other] = drivers as [Driver, Driver];
      for (const driver of drivers) await driver.open(NO_EVENTS);
      await endGracePeriod();
      const standbyQuery = (text: string) => queryPostgres(standbyUrl, text);
      const hasCaughtUp = async (): Promise<boolean> => {
        const rows = await standbyQuery("select grace_ends::int from holdfast.holdfast_1_identity").catch(() => []);
        return rows[0]?.grace_ends === 0;
      };
      const scenario: LossScenario = {
        holder,
        other,
        async backUp() {
          await until(hasCaughtUp, { within: 20_000, what: "the tables on the standby" });
          const [sender] = await server().query("select pid::int from pg_stat_replication");
          stopProcess(Number(sender?.pid));
        },
        async lose() {
          await server().crash();
          await standby.promote();
          for (const pool of pools) pool.options.connectionString = standbyUrl;
          await reconnect(holder, other);
        },
        endGracePeriod: () => endGracePeriod(standbyQuery),
        inspect: (isPaused) => findPostgresViolations(standbyQuery, { isPaused }),
      };
      await expectLockKept(scenario);
      for (const driver of drivers) await driver.close();
    } finally {
      for (const pool of pools) await pool.end();
      await standby.dispose();
      await server().start();
    }
  });

  test("vacuum changes nothing of the identity; the longest ttl counts; a clock that steps back makes no period longer", async () => {
    const short = await open(5_000);
    expect(
      fixture.warnings.filter((text) => /grace period.*no locks are granted for \d{1,4} ms/.test(text)),
    ).toHaveLength(1);
    const long = await open(600_000);
    const pause = async (driver: Driver): Promise<number> => {
      const answer = await driver.claim(exclusive({ ttlMs: 1_000, wait: false }));
      return answer.state === "none" ? (answer.paused?.remainingMs ?? 0) : 0;
    };
    expect(await pause(short)).toBeGreaterThan(500_000);
    await endGracePeriod();
    for (const table of TABLES) await query(`vacuum (freeze) ${table}`);
    await query("vacuum full holdfast.holdfast_1_identity");
    const claim = exclusive({ ttlMs: 1_000 });
    expectHeld(await long.claim(claim));
    await long.release([{ claim, hasUnansweredClaim: false }]);
    await forgetIdentity(query);
    expect(await pause(long)).toBeGreaterThan(590_000);
    await query(`update holdfast.holdfast_1_identity set writer = txid_current() % 4294967296,
      grace_begins = grace_begins + 1000000000000, grace_ends = grace_ends + 1000000000000`);
    const afterStep = await pause(long);
    expect(afterStep).toBeGreaterThan(590_000);
    // the period begins a little after the time that the answer counts from
    expect(afterStep).toBeLessThanOrEqual(605_000);
    expect(await long.claim(exclusive())).toMatchObject({ state: "waiting", paused: PAUSE });
  });
});
