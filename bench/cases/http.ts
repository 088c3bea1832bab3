/** Our server over HTTP against the same server over its own protocol. */

import type { BenchCase } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import type { Workload } from "../harness/closed-loop.ts";
import { interleave, pairRates, starvedCallers, toRow } from "../harness/rounds.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";

const HTTP = "holdfast, HTTP";
const STRICT = "holdfast, strict order";

function httpCase(name: string, title: string, load: Workload): BenchCase {
  return {
    name,
    title,
    about:
      "The gateway in the server's process, over connections that stay open. Beside it the protocol of the server in strict " +
      "order, where each request has a claim of its own, as it has over HTTP.",
    headline: ["pairs/s"],
    reasons: {
      "*": "A request over HTTP has a head, JSON and a reference to make or to check, and its pair has no batches.",
    },
    async run() {
      const rounds = await interleave([HTTP, STRICT], () => load);
      const [http, strict] = [rounds(HTTP), rounds(STRICT)];
      return {
        rows: [toRow(HTTP, http), toRow(STRICT, strict)],
        checks: [
          check(
            "goal",
            "rate of the server's protocol",
            computeRatio(pairRates(http), pairRates(strict)),
            "at least",
            0.05,
          ),
          check("gate", "callers that got nothing", computeSpread(starvedCallers(http)), "exactly", 0),
        ],
      };
    },
  };
}

export const httpUncontended: BenchCase = httpCase("http", "HTTP, one caller, uncontended", {
  ...{ callers: 1, keys: 1, ms: 700, latencies: true },
});
export const httpContended: BenchCase = httpCase("http-64", "HTTP, 64 callers on one key", {
  ...{ callers: 64, keys: 1, ms: 700, latencies: true },
});
