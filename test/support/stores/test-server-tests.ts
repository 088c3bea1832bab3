/** What a database server for tests must do, whichever it is. */

import { expect, test } from "vitest";
import { descendants, identifyProcess, isAlive } from "../../../src/torture/processes/process-tree.ts";
import type { ShiftedClock } from "../shifted-clock.ts";
import type { DatabaseServer, ServerOptions, TestDatabase } from "./sql-database.ts";

interface Session {
  run(text: string): Promise<unknown>;
  close(): unknown;
}

export interface ServerKind {
  /** Reads the settings `isolation` and `sync`. */
  readonly settingsQuery: string;
  /** Of the server under test, which was started with another isolation level; and of one with its defaults and isSynced. */
  readonly settings: { readonly asked: object; readonly byDefault: object };
  /** Reads its parameter as `n`. */
  readonly bigintQuery: string;
  /** The clock in milliseconds, as text, as `ms`. */
  readonly clockQuery: string;
  /** At least so many. */
  readonly processes: number;
  /** Creates the user "app" with the password "pw". */
  createUser(database: TestDatabase): Promise<unknown>;
  /** Reads its user as `name`, over a connection of its own. */
  readUser(url: string): Promise<unknown>;
  readonly userName: string;
  start(options: ServerOptions): Promise<DatabaseServer>;
  open(url: string): Promise<Session>;
}

/** Registers tests of a server. */
export function testServer(server: () => DatabaseServer, kind: ServerKind): void {
  test("a fresh database is empty, and is not another one", async () => {
    const [one, other] = [await server().freshDatabase(), await server().freshDatabase()];
    await one.query("create table t (n int)");
    await expect(other.query("select * from t")).rejects.toThrow(/does not exist|doesn't exist/);
    await one.drop();
    await expect(one.query("select 1")).rejects.toThrow(/does not exist|Unknown database/);
    expect(await other.query(kind.bigintQuery, ["9223372036854775807"])).toEqual([{ n: "9223372036854775807" }]);
  });

  test("the server has the settings that were asked for, and no sync unless that was", async () => {
    expect(await server().query(kind.settingsQuery)).toEqual([kind.settings.asked]);
  });

  test("a user needs its password", async () => {
    const database = await server().freshDatabase();
    await kind.createUser(database);
    expect(await kind.readUser(database.urlOf("app", "pw"))).toEqual([{ name: kind.userName }]);
    await expect(kind.readUser(database.urlOf("app", "other"))).rejects.toThrow(/password/);
  });

  test.each(["restart", "crash"] as const)("what was committed is there after a %s", async (way) => {
    const database = await server().freshDatabase();
    await database.query("create table t (n int)");
    await database.query("insert into t values (1)");
    const { pid } = server();
    if (way === "restart") await server().restart();
    else {
      const all = [identifyProcess(pid), ...descendants(pid)].filter((one) => one !== null);
      expect(all.length).toBeGreaterThanOrEqual(kind.processes);
      await server().crash();
      expect(all.filter(isAlive)).toEqual([]);
      expect(server().pid).toBe(0);
      await server().start();
    }
    expect(server().pid).not.toBe(pid);
    expect(await database.query("select n from t")).toEqual([{ n: 1 }]);
  });
}

/** Registers a test of a server with a clock of its own. */
export function testServerClock(server: () => DatabaseServer, clock: () => ShiftedClock, clockQuery: string): void {
  test("the database's time is moved while it runs", async () => {
    const now = async (): Promise<number> => Number((await server().query(clockQuery))[0]?.ms);
    expect(Math.abs((await now()) - Date.now())).toBeLessThan(5_000);
    clock().shift(60_000);
    expect((await now()) - Date.now()).toBeGreaterThan(55_000);
    clock().shift(-60_000);
    expect((await now()) - Date.now()).toBeLessThan(-55_000);
    clock().freeze(1_800_000_000_000_000);
    expect(await now()).toBe(1_800_000_000_000);
    clock().shift(0);
  });
}

/** Registers a test that starts a server of its own. */
export function testReportOfFaults({ start, settingsQuery, settings, open }: ServerKind): void {
  test("a deadlock in the log of a server is reported when the server is removed", async () => {
    const server = await start({ isSynced: true });
    expect(await server.query(settingsQuery)).toEqual([settings.byDefault]);
    const { url, query } = await server.freshDatabase();
    await query("create table t (n int primary key, m int)");
    await query("insert into t values (1, 0), (2, 0)");
    const [one, other] = [await open(url), await open(url)];
    for (const [session, n] of [
      [one, 1],
      [other, 2],
    ] as const) {
      await session.run("begin");
      await session.run(`update t set m = 1 where n = ${n}`);
    }
    const ended = await Promise.allSettled([
      one.run("update t set m = 1 where n = 2"),
      other.run("update t set m = 1 where n = 1"),
    ]);
    expect(ended.map(({ status }) => status)).toContain("rejected");
    await Promise.all([one.close(), other.close()]);
    await expect(server.dispose()).rejects.toThrow(/deadlock detected/);
  });
}
