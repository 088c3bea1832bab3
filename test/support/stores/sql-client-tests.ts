/** What every adapter of a client library must do, whichever database it is for. */

import { expect } from "vitest";
import type { SqlClient, SqlConnection, SqlResult, SqlValue } from "../../../src/drivers/sql/clients/types.ts";
import { until } from "../until.ts";

const WITHIN = 5_000;

/** Runs a statement on a connection of its own. */
export async function query(client: SqlClient, text: string, values: readonly SqlValue[] = []): Promise<SqlResult> {
  const connection = await client.connect();
  try {
    return await connection.query(text, values);
  } finally {
    connection.release();
  }
}

/** After a connection was killed while it was idle: the library may notice with the next call only. */
export async function expectUsableAgain(client: SqlClient): Promise<void> {
  const isUsable = (): Promise<boolean> =>
    query(client, "select 1 as n").then(
      () => true,
      () => false,
    );
  await until(isUsable, { within: WITHIN, what: "a new connection" });
}

/** Ends of a dedicated connection: it is killed, it is released, and it has ended already. */
export async function expectEndsReportedOnce(
  client: SqlClient,
  kill: (connection: SqlConnection) => Promise<void>,
): Promise<void> {
  const ends: string[] = [];
  const killed = await client.connectDedicated!();
  killed.onEnd(() => ends.push("killed"));
  expect((await killed.query("select 1 as n")).rows).toEqual([{ n: 1 }]);
  await kill(killed);
  await until(() => ends.length > 0, { within: WITHIN, what: "the end" });
  await expect(killed.query("select 1 as n")).rejects.toThrow();
  killed.release();
  const released = await client.connectDedicated!();
  released.onEnd(() => ends.push("released"));
  released.release();
  released.onEnd(() => ends.push("late"));
  expect(ends).toEqual(["killed", "released", "late"]);
}

/** Callers of a single connection take turns, and it survives release(true). Returns it, as the second caller has it. */
export async function expectOneCallerAtATime(client: SqlClient): Promise<SqlConnection> {
  expect(client.connectDedicated).toBeUndefined();
  const first = await client.connect();
  let isSecond = false;
  const second = client.connect().then((connection) => {
    isSecond = true;
    return connection;
  });
  await first.query("select 1 as n");
  expect(isSecond).toBe(false);
  first.release(true);
  return second;
}

/** The pool has four connections, and a fifth caller waits for one of them. */
export async function expectFourConnections(client: SqlClient): Promise<void> {
  const four = await Promise.all([1, 2, 3, 4].map(() => client.connect()));
  let isFifth = false;
  const fifth = client.connect().then((connection) => {
    isFifth = true;
    connection.release();
  });
  await four[0]!.query("select 1 as n");
  expect(isFifth).toBe(false);
  for (const connection of four) connection.release();
  await fifth;
}
