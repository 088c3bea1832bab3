/**
 * A process that takes the lock "k", fences a transaction and writes a row in it. It commits at the word "commit" on its
 * input. What it has done stands on its output: "fenced", then "committed" or "refused".
 */

import { once } from "node:events";
import { createInterface } from "node:readline";
import Database from "libsql";
import { createConnection } from "mysql2/promise";
import { Client } from "pg";
import { fence } from "../../../src/fencing/index.ts";
import { connect } from "../../../src/index.ts";
import { FENCED_LEASE } from "./fenced-transaction.ts";

const [lockUrl = "", dataUrl = ""] = process.argv.slice(2);

type Transaction = { readonly handle: object; run(text: string): Promise<unknown> };

async function begin(url: string): Promise<Transaction> {
  if (url.startsWith("postgres:")) {
    const client = new Client(url);
    // the server ends it while nothing runs
    client.on("error", () => undefined);
    await client.connect();
    await client.query("begin");
    return { handle: client, run: (text) => client.query(text) };
  }
  if (url.startsWith("mysql:")) {
    const connection = await createConnection(url);
    connection.on("error", () => undefined);
    await connection.beginTransaction();
    return { handle: connection, run: (text) => connection.query(text) };
  }
  const database = new Database(url.replace("sqlite:", ""));
  database.exec("begin immediate");
  return { handle: database, run: async (text) => database.exec(text) };
}

const locks = await connect(lockUrl);
const lock = await locks.acquire("k", { ttl: FENCED_LEASE });
const transaction = await begin(dataUrl);
await fence(transaction.handle, lock);
await transaction.run("insert into data (who) values ('stopped')");
console.log("fenced");
await once(createInterface(process.stdin), "line");
try {
  await transaction.run("commit");
  console.log("committed");
} catch {
  console.log("refused");
}
process.exit(0);
