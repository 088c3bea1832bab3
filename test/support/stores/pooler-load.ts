/** Other clients of a PgBouncer, and what they would find in the sessions that they share with a driver. */

import { Client } from "pg";
import type { PgBouncer } from "./pgbouncer.ts";
import type { TestDatabase } from "./sql-database.ts";

/** Clients whose short transactions keep the pool busy until they are stopped. None of them may ever fail. */
export async function startPoolerLoad(
  bouncer: PgBouncer,
  { name }: TestDatabase,
  clientCount: number,
): Promise<() => Promise<void>> {
  let isStopped = false;
  const clients = await connectMany(bouncer, name, clientCount);
  const loops = clients.map(async (client) => {
    while (!isStopped) await client.query(`select pg_sleep(${(Math.random() / 500).toFixed(5)})`);
    await client.end();
  });
  const failure = Promise.all(loops).then(
    () => null,
    (error: unknown) => error,
  );
  return async () => {
    isStopped = true;
    const error = await failure;
    if (error !== null) throw error;
  };
}

/** What a driver has left in sessions of the server. */
const READ_LEFTOVERS = `select current_setting('idle_session_timeout') as idle_timeout, current_setting('lock_timeout') as lock_timeout,
  coalesce(current_setting('holdfast.session', true), '') as mark,
  (select count(*)::int from pg_locks where pid = pg_backend_pid() and locktype = 'advisory') as locks,
  (select count(*)::int from pg_prepared_statements where name like 'holdfast%' or statement like '%advisory%') as prepared`;

/** Of each session in the pool, once, what is not as it was. */
export async function findPoolerLeftovers(bouncer: PgBouncer, { name }: TestDatabase, poolSize: number) {
  const clean = { idle_timeout: "0", lock_timeout: "0", mark: "", locks: 0, prepared: 0 };
  // transactions that are open at the same time have different sessions
  const clients = await connectMany(bouncer, name, poolSize);
  await Promise.all(clients.map((client) => client.query("begin")));
  const results = await Promise.all(clients.map((client) => client.query(READ_LEFTOVERS)));
  await Promise.all(clients.map((client) => client.query("commit").then(() => client.end())));
  return results.flatMap(({ rows }) => rows).filter((row) => JSON.stringify(row) !== JSON.stringify(clean));
}

/** What a person would do who changes the configuration: applies to clients that are connected. */
export async function setPoolMode(bouncer: PgBouncer, mode: "session" | "transaction"): Promise<void> {
  const client = new Client(bouncer.consoleUrl);
  await client.connect();
  await client.query(`set pool_mode = '${mode}'`);
  await client.end();
}

function connectMany(bouncer: PgBouncer, database: string, count: number): Promise<Client[]> {
  return Promise.all(
    Array.from({ length: count }, async () => {
      const client = new Client(bouncer.urlOf(database));
      // its query reports it
      client.on("error", () => undefined);
      await client.connect();
      return client;
    }),
  );
}
