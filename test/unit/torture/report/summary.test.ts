import { expect, test } from "vitest";
import { createReports } from "./reports.ts";
import { doubleGrant, goodHistory } from "./sample-history.ts";

test("what a program reads of a good run", () => {
  expect(createReports(goodHistory(), "change the url").summary).toMatchObject({
    ...{ format: 1, verdict: "ok", seed: 7, subject: "Holdfast 1.2.3", store: "Redis 7.0.15" },
    ...{ command: "holdfast torture --start redis --seed 7", commandNote: "change the url" },
    versions: { holdfast: "1.2.3", node: "v20", kernel: "6.1", store: "Redis 7.0.15" },
    ...{ ttlMs: 1_000, workers: 2, seconds: 20, faults: ["pause"], violations: [], reasons: [] },
    notTested: { latency: "there is no proxy" },
    figures: { holds: 30, doubleHolds: 0 },
  });
});

test("a violation names its key, its time and its operations", () => {
  const { violations, sentence } = createReports(doubleGrant()).summary;
  expect(violations).toContainEqual({
    ...{ invariant: "exclusion", key: "a", at: 6_200_000, operations: ["0/100", "1/100"] },
    message: "two holders had it at once, for 100 ms",
  });
  expect(sentence).toContain("VIOLATED");
});

test("a kind of operation that the subject never does is not tested", () => {
  const events = goodHistory();
  events.splice(-3, 0, { event: "unsupported", at: 1, worker: 0, kind: "reader", reason: "it has none" });
  expect(createReports(events).summary.notTested).toEqual({ latency: "there is no proxy", reader: "it has none" });
});
