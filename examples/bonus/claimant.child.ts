// One process of claimants: at each message, which names a strategy, all of its requests are made at once, over a pool of ten
// connections.

import { once } from "node:events";
import { createLocks } from "holdfast";
import { openDatabase } from "./database.ts";
import type { ProcessReport } from "./process-report.ts";
import type { StrategyName } from "./strategies.ts";
import { STRATEGIES } from "./strategies.ts";

const CONNECTIONS = 10;
const [url = "", ...users] = process.argv.slice(2);
const database = openDatabase(url, CONNECTIONS);
const locks = createLocks(database.createDriver(), { ttl: "2m" });

// every connection is open, and the lock tables exist, before anybody begins
await Promise.all(
  Array.from({ length: CONNECTIONS }, () => database.use((connection) => connection.query("select 1"))),
);
await (await locks.acquire(`warm-up:${process.pid}`)).release();
process.on("message", (strategy: StrategyName) => {
  void claimAll(strategy).then((report) => process.send?.(report));
});
process.send?.("ready");
await once(process, "disconnect");
await locks.close();
await database.close();

async function claimAll(strategy: StrategyName): Promise<ProcessReport> {
  const { claim } = STRATEGIES[strategy];
  const counts: Record<string, number> = {};
  let retries = 0;
  await Promise.all(
    users.map(async (user) => {
      const result = await claim(database, locks, Number(user));
      counts[result.ending] = (counts[result.ending] ?? 0) + 1;
      retries += result.retries;
    }),
  );
  return { counts, retries };
}
