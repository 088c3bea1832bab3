/** What candidates and the observer in the test have in common: the name of their election, and its store. */

import { Redis } from "ioredis";
import { quorum } from "../../../src/drivers/quorum/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { connect, createLocks } from "../../../src/index.ts";

export const ELECTION = "scheduler";

/** The store of a url, or "quorum:url,url,url": the majority of these Redis servers. */
export async function connectStore(url: string): Promise<Locks> {
  const [, members] = /^quorum:(.*)$/.exec(url) ?? [];
  // a machine that starts three stores and fifteen processes takes its time
  if (members === undefined) return connect(url, { connectTimeout: "30s" });
  return createLocks(quorum(members.split(",").map((member) => redis(() => new Redis(member)))));
}
