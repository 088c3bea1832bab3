// Locks, hands the reference on, and ends.

import type { Duration } from "holdfast";
import { connect } from "holdfast";
import type { Carried } from "./rules.ts";

const [url, key = "", ttl] = process.argv.slice(2);
const locks = await connect(url);
const lock = await locks.acquire(key, { ttl: ttl as Duration });
const token = String(lock.token);
const carried: Carried = { reference: await lock.detach(), token };
process.send?.(carried, () => process.disconnect());
await locks.close();
