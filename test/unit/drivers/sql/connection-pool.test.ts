import { describe, expect, test } from "vitest";
import { EndSignal } from "../../../../src/drivers/sql/clients/connection.ts";
import { ConnectionPool } from "../../../../src/drivers/sql/clients/connection-pool.ts";
import type { DedicatedConnection, SqlConnection } from "../../../../src/drivers/sql/clients/types.ts";

interface OpenConnection extends DedicatedConnection {
  readonly number: number;
  isClosed: boolean;
}

function createSubject(max: number) {
  const opened: OpenConnection[] = [];
  const failures: Error[] = [];
  let listenerCount = 0;
  const open = async (): Promise<DedicatedConnection> => {
    await Promise.resolve();
    const failure = failures.pop();
    if (failure !== undefined) throw failure;
    const signal = new EndSignal();
    const connection: OpenConnection = {
      number: opened.length,
      isClosed: false,
      sessionId: null,
      async query(text) {
        if (text === "fail") throw new Error("of the network");
        if (text === "refuse") throw new Error("of the server");
        return { rows: [{ number: connection.number }], affectedCount: 0 };
      },
      release() {
        connection.isClosed = true;
        signal.end();
      },
      onEnd(listener) {
        listenerCount++;
        signal.onEnd(listener);
      },
    };
    opened.push(connection);
    return connection;
  };
  const pool = new ConnectionPool(open, max, (error) => (error as Error).message === "of the server");
  return { pool, opened, failures, listenerCount: () => listenerCount };
}

const numberOf = async (connection: SqlConnection): Promise<unknown> =>
  (await connection.query("select")).rows[0]?.number;

describe("a pool of connections", () => {
  test("listens once to each connection, however often it is used", async () => {
    const { pool, listenerCount } = createSubject(1);
    for (let use = 0; use < 5; use++) (await pool.take()).release();
    expect(listenerCount()).toBe(1);
  });

  test("opens at most as many as it may, and serves callers in order", async () => {
    const { pool, opened } = createSubject(2);
    const first = await pool.take();
    await pool.take();
    const order: string[] = [];
    const third = pool.take().then((connection) => {
      order.push("third");
      return connection;
    });
    const fourth = pool.take().then((connection) => {
      order.push("fourth");
      return connection;
    });
    first.release();
    first.release();
    expect(await numberOf(await third)).toBe(0);
    expect(order).toEqual(["third"]);
    (await third).release();
    expect(await numberOf(await fourth)).toBe(0);
    expect(opened).toHaveLength(2);
  });

  test.each(["fail", "begin"])("closes a connection after %s, and opens another one", async (text) => {
    const { pool, opened } = createSubject(1);
    const first = await pool.take();
    await first.query(text).catch(() => undefined);
    const next = pool.take();
    first.release();
    expect(await numberOf(await next)).toBe(1);
    expect(opened[0]?.isClosed).toBe(true);
  });

  test("keeps a connection after an error of the server, and after the end of a transaction", async () => {
    const { pool } = createSubject(1);
    const first = await pool.take();
    await expect(first.query("refuse")).rejects.toThrow("of the server");
    for (const text of ["begin", "commit", "begin", "rollback"]) await first.query(text);
    first.release();
    expect(await numberOf(await pool.take())).toBe(0);
  });

  test("forgets a connection that ends, idle or in use", async () => {
    const { pool, opened } = createSubject(1);
    (await pool.take()).release();
    opened[0]?.release();
    const second = await pool.take();
    expect(await numberOf(second)).toBe(1);
    const next = pool.take();
    opened[1]?.release();
    second.release();
    expect(await numberOf(await next)).toBe(2);
  });

  test("a connection that cannot be opened leaves its place to the next caller", async () => {
    const { pool, failures } = createSubject(1);
    failures.push(new Error("refused"));
    const [first, second] = [pool.take(), pool.take()];
    await expect(first).rejects.toThrow("refused");
    expect(await numberOf(await second)).toBe(0);
  });

  test("close() closes the idle ones at once, those in use with their release, and rejects who waits", async () => {
    const { pool, opened } = createSubject(2);
    const [first, second] = [await pool.take(), await pool.take()];
    const waits = pool.take();
    first.release();
    (await waits).release();
    const late = pool.take().then((connection) => pool.take().finally(() => connection.release()));
    await Promise.resolve();
    pool.close();
    await expect(late).rejects.toThrow("closed");
    expect(opened[1]?.isClosed).toBe(false);
    second.release();
    expect(opened.map(({ isClosed }) => isClosed)).toEqual([true, true]);
    await expect(pool.take()).rejects.toThrow("closed");
  });
});
