/** The connection that listens is cut, or falls silent, while several processes take turns on several keys. */

import { afterEach, beforeEach, expect } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import type { FencedRegister } from "../../support/processes/fenced-register.ts";
import { openFencedRegister } from "../../support/processes/fenced-register.ts";
import { test } from "../../support/processes/process-harness.ts";
import { startWorker } from "../../support/processes/worker.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import { startTurnTaking } from "../../support/stores/turn-taking.ts";

const LISTENERS = "from pg_stat_activity where datname = current_database() and query ~ '^listen'";
const KEYS = ["a", "b", "c"];
const CUTS = 12;
/** A grant that only the next renewal finds comes after 20 s, a third of the lease; a recheck comes at once. */
const LEASE = "60s";
const MAX_IDLE_MS = 5_000;

withPostgres((server) => {
  let fixture: PostgresFixture;
  beforeEach(async () => {
    fixture = await createPostgresFixture(server());
  });
  afterEach(() => fixture.close());

  test("cut again and again: no grant is lost for longer than a recheck, and none is made twice", async ({
    harness,
  }) => {
    const url = `${fixture.database.url}?silenceWarnings=durability`;
    const register = await openFencedRegister(harness);
    const workers = [];
    for (let count = 0; count < 3; count++) workers.push(await startWorker(harness, url, register.path));
    for (const worker of workers) {
      for (const key of KEYS) worker.send({ do: "load", of: key, keys: [key], ttl: LEASE, holdMs: 2 });
    }
    for (let cut = 0; cut < CUTS; cut++) {
      const enough = register.log.length + 30;
      const cutSome = async (): Promise<boolean> => {
        const killed = await fixture.database.query(`select pg_terminate_backend(pid) ${LISTENERS}`);
        return killed.length > 0 && register.log.length >= enough;
      };
      await until(cutSome, { within: 20_000, what: "a connection that listens, and turns" });
      expect(await fixture.inspect()).toEqual([]);
    }
    for (const worker of workers) for (const key of KEYS) worker.send({ do: "finish", of: key });
    for (const worker of workers) for (const key of KEYS) await worker.waitForReport(key, "done");
    expect(workers.flatMap((worker) => worker.reports()).filter(({ event }) => event === "lost")).toEqual([]);
    expect(register.faults()).toEqual([]);
    expect(longestIdleMs(register)).toBeLessThan(MAX_IDLE_MS);
    expect(await fixture.inspect()).toEqual([]);
  });

  test("half-open: the others go on, and the silent connection is replaced", async () => {
    await using proxy = await tcpProxy({ host: "127.0.0.1", port: server().port });
    const { port } = proxy.address as { readonly port: number };
    const options = { ttl: "6s", order: "strict" } as const;
    const behindProxy = fixture.locks(options, {
      url: fixture.database.url.replace(/:\d+\//, `:${port}/`),
      commandTimeoutMs: 500,
      max: 2,
    });
    const load = await startTurnTaking([fixture.locks(options), fixture.locks(options), behindProxy], fixture.inspect);
    const countListeners = async (): Promise<number> =>
      Number((await fixture.database.query(`select count(*)::int as n ${LISTENERS}`))[0]?.n);
    await load.survive(async () => {
      await until(async () => (await countListeners()) === 3, { within: 10_000, what: "three listeners" });
      proxy.silence();
      // the server knows nothing of the end of the silent one
      await until(async () => (await countListeners()) === 4, { within: 20_000, what: "another listener" });
    }, 1);
    await load.finish();
    // at worst, a grant whose push was lost ends with its lease
    expect(load.longestIdleMs()).toBeLessThan(6_000 + MAX_IDLE_MS);
    await fixture.closeDrivers();
  });
});

/** Between a leave and the next enter of a key: others wait for it all the time. */
function longestIdleMs({ log }: FencedRegister): number {
  const leftAt = new Map<string, bigint>();
  let longest = 0n;
  for (const { what, key, at } of log) {
    if (what === "leave") leftAt.set(key, at);
    const idle = at - (leftAt.get(key) ?? at);
    if (what === "enter" && idle > longest) longest = idle;
  }
  return Number(longest / 1_000_000n);
}
