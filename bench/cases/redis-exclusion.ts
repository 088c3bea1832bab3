/** That the locks on Redis which are measured exclude. */

import { OURS, REDIS_RIVALS, STRICT } from "../contestants/redis.ts";
import type { BenchCase, Check, Row } from "../harness/case.ts";
import { check } from "../harness/case.ts";
import type { Section } from "../harness/exclusion.ts";
import { faultsOf } from "../harness/exclusion.ts";
import { withRedis } from "../harness/redis.ts";
import { QUICK, withTeams } from "../harness/redis-rounds.ts";
import { spreadOf, variation } from "../harness/stats.ts";

const MS = QUICK ? 200 : 700;
const CONTROL = "no lock";

export const redisExclusion: BenchCase = {
  name: "redis-exclusion",
  title: "Redis, exclusion",
  about:
    "Four processes with four callers each on one key, every section lasting some turns of the event loop, compared on the " +
    "machine's monotonic clock. The control takes no lock, and must overlap. The spread is of the sections per process.",
  async run() {
    const rows: Row[] = [];
    const checks: Check[] = [];
    await withRedis(async (server) => {
      for (const name of [CONTROL, OURS, STRICT, ...Object.keys(REDIS_RIVALS)]) {
        const each = await withTeams([name], 4, server, ([team]) =>
          Promise.all((team?.clients ?? []).map((client) => client.call<Section[]>("exclusion", MS))),
        );
        const { overlaps, tokens } = faultsOf(each.flat());
        const figures = {
          sections: spreadOf([each.flat().length]),
          overlaps: spreadOf([overlaps]),
          "spread of sections": spreadOf([variation(each.map((sections) => sections.length))]),
        };
        rows.push({ contestant: name, figures });
        if (name === CONTROL) checks.push(check("gate", `${name}: overlaps`, spreadOf([overlaps]), "at least", 1));
        if (!name.startsWith("holdfast")) continue;
        checks.push(
          check("gate", `${name}: overlaps`, spreadOf([overlaps]), "exactly", 0),
          check("gate", `${name}: sections`, spreadOf([each.flat().length]), "at least", 100),
          check("gate", `${name}: tokens that did not rise`, spreadOf([tokens]), "exactly", 0),
        );
      }
    });
    return { rows, checks };
  },
};
