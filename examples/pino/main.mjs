// Logs what happens to locks with pino, as lines of JSON. npm install holdfast pino

import { connect } from "holdfast";
import { pino } from "pino";

const logger = pino({ level: "debug" });
const locks = await connect(undefined, { logger: logger.child({ component: "locks" }) });

await locks.using("report:7", async () => {
  logger.info("writing the report");
});

// a wait that ends without the lock is a warning
const lock = await locks.acquire("report:7");
await locks.acquire("report:7", { wait: "50ms" }).catch(() => undefined);
await lock.release();

await locks.close();
