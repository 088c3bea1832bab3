/** That the locks on Redis which are measured exclude. */

import type { BenchCase, Check, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import type { CriticalSection } from "../harness/exclusion.ts";
import { countFaults } from "../harness/exclusion.ts";
import { IS_QUICK_RUN } from "../harness/quick-run.ts";
import { withBenchRedis } from "../harness/redis.ts";
import { computeSpread, variation } from "../harness/stats.ts";
import { withStoreGroups } from "../harness/store-rounds.ts";
import { HOLDFAST, HOLDFAST_CACHED, HOLDFAST_STRICT, REDIS_THIRD_PARTIES } from "../implementations/redis.ts";

const DURATION_MS = IS_QUICK_RUN ? 200 : 700;
const CONTROL_NAME = "no lock";

export const redisExclusion: BenchCase = {
  name: "redis-exclusion",
  title: "Redis, exclusion",
  about:
    "Four processes with four callers each on one key, every section lasting some turns of the event loop, compared on the " +
    "machine's monotonic clock. The control takes no lock, and must overlap. The spread is of the sections per process.",
  async run() {
    const rows: Row[] = [];
    const checks: Check[] = [];
    await withBenchRedis(async (server) => {
      for (const name of [
        CONTROL_NAME,
        HOLDFAST,
        HOLDFAST_STRICT,
        HOLDFAST_CACHED,
        ...Object.keys(REDIS_THIRD_PARTIES),
      ]) {
        const sections = await withStoreGroups([name], 4, server, async ([group]) => {
          const clients = group?.clients ?? [];
          await Promise.all(clients.map((client) => client.call("ready")));
          return Promise.all(clients.map((client) => client.call<CriticalSection[]>("exclusion", DURATION_MS)));
        });
        const { overlaps, tokens } = countFaults(sections.flat());
        const figures = {
          sections: computeSpread([sections.flat().length]),
          overlaps: computeSpread([overlaps]),
          "spread of sections": computeSpread([variation(sections.map((sections) => sections.length))]),
        };
        rows.push({ name, figures });
        if (name === CONTROL_NAME)
          checks.push(check("gate", `${name}: overlaps`, computeSpread([overlaps]), "at least", 1));
        if (!name.startsWith("holdfast")) continue;
        checks.push(
          check("gate", `${name}: overlaps`, computeSpread([overlaps]), "exactly", 0),
          check("gate", `${name}: sections`, computeSpread([sections.flat().length]), "at least", 100),
          check("gate", `${name}: tokens that did not rise`, computeSpread([tokens]), "exactly", 0),
        );
      }
    });
    return { rows, checks };
  },
};
