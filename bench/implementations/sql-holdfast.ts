/** Ours on databases, as a url opens it. */

import type { Lock, LocksOptions } from "../../src/index.ts";
import { connect } from "../../src/index.ts";
import type { LockImplementation } from "../harness/closed-loop.ts";

export async function openSqlHoldfast(address: string, options: LocksOptions = {}): Promise<LockImplementation<Lock>> {
  const locks = await connect(address, options);
  // connected, and the tables created, before anything is measured
  await locks.list();
  return {
    acquire: (key) => locks.acquire(key),
    release: (lock) => lock.release(),
    tokenOf: (lock) => lock.token,
    close: () => locks.close(),
  };
}
