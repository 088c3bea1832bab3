/** Holdfast on databases, as a url opens it. */

import type { Lock, Locks, LocksOptions } from "../../src/index.ts";
import { connect } from "../../src/index.ts";
import type { LockImplementation } from "../harness/closed-loop.ts";

export async function openSqlHoldfast(address: string, options: LocksOptions = {}): Promise<LockImplementation<Lock>> {
  return open(await connect(address, options));
}

/** The locks of the database that end with their connection, on PostgreSQL and MariaDB. They have no token. */
export async function openAdvisoryHoldfast(address: string): Promise<LockImplementation<Lock>> {
  return open(await connect(address.replace(":", "+advisory:")));
}

async function open(locks: Locks): Promise<LockImplementation<Lock>> {
  // connected, and the tables created, before anything is measured
  await (await locks.acquire(`first:${process.pid}`)).release();
  return {
    acquire: (key) => locks.acquire(key),
    release: (lock) => lock.release(),
    tokenOf: (lock) => lock.token,
    close: () => locks.close(),
  };
}
