// Locks, hands the reference on, and ends.

import type { Duration } from "holdfast";
import { connect } from "holdfast";
import type { DetachedLock } from "./semantics.ts";

const [url, key = "", ttl] = process.argv.slice(2);
const locks = await connect(url);
const lock = await locks.acquire(key, { ttl: ttl as Duration });
const token = String(lock.token);
const detached: DetachedLock = { reference: await lock.detach(), token };
process.send?.(detached, () => process.disconnect());
await locks.close();
