/** What every adapter of a client library must do, whichever database it is for. */

import { once } from "node:events";
import type { AddressInfo, Socket } from "node:net";
import { connect, createServer } from "node:net";
import { expect, onTestFinished } from "vitest";
import type { SqlClient, SqlConnection, SqlResult, SqlValue } from "../../../src/drivers/sql/clients/types.ts";
import { until } from "../../../src/testing/until.ts";

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

/**
 * A server may accept connections and then be silent, at whatever point of the login: attempts fail in time, and give
 * their places in the pool back.
 * @param answers the counts of messages that it sends before
 * @param open opens a client of four connections that waits for 300 ms
 */
export async function expectSilentLoginsGivenUp(
  port: number,
  answers: readonly number[],
  open: (port: number) => SqlClient | Promise<SqlClient>,
): Promise<void> {
  let passedCount = 0;
  const sockets: Socket[] = [];
  const relay = createServer((client) => {
    const upstream = connect(port, "127.0.0.1");
    for (const socket of [client, upstream]) sockets.push(socket.on("error", () => undefined));
    client.on("close", () => upstream.destroy());
    client.pipe(upstream);
    let count = 0;
    upstream.on("data", (message) => {
      if (count++ < passedCount) client.write(message);
    });
  }).listen(0, "127.0.0.1");
  await once(relay, "listening");
  const client = await open((relay.address() as AddressInfo).port);
  onTestFinished(async () => {
    await client.close();
    for (const socket of sockets) socket.destroy();
    relay.close();
  });
  for (const count of answers) {
    passedCount = count;
    const attempts = await Promise.allSettled([1, 2, 3, 4].map(() => client.connect()));
    for (const attempt of attempts)
      expect(attempt).toMatchObject({ reason: { message: expect.stringContaining("no answer within 300 ms") } });
  }
  passedCount = Number.POSITIVE_INFINITY;
  (await client.connect()).release();
}
