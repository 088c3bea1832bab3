import { describe, expect, test } from "vitest";
import type { Verdict } from "../../../src/torture/checker.ts";
import { checkHistory } from "../../../src/torture/checker.ts";
import type { HistoryEvent, Operation, RunHeader } from "../../../src/torture/history.ts";
import { readOperations } from "../../../src/torture/operations.ts";
import { writeHistory } from "../../support/torture-model.ts";

const MS = 1_000;
const judge = (events: Iterable<HistoryEvent>): Verdict => checkHistory(readOperations(events));

const HEADER: RunHeader = {
  ...{ event: "run", format: 1, seed: 1, subject: "test", store: "test", ttlMs: 1_000, workers: 3, seconds: 1 },
  ...{ faults: [], versions: {} },
};

/** The events of an operation; times in milliseconds. */
class Script {
  readonly events: HistoryEvent[] = [HEADER];
  #token = 1;

  add(...events: readonly HistoryEvent[]): this {
    this.events.push(...events);
    return this;
  }

  /** A usual one: granted and asked at `from`, released at `to`. */
  hold(
    worker: number,
    op: number,
    from: number,
    to: number,
    more: Partial<Operation> & { askedAt?: number } = {},
  ): this {
    this.grant(worker, op, from, (to - from) * 2, more);
    const common = { worker, op };
    return this.add(
      { event: "releasing", at: to * MS, ...common },
      { event: "released", at: to * MS + 1, wasHeld: true, ...common },
    );
  }

  grant(
    worker: number,
    op: number,
    from: number,
    leftMs: number,
    { askedAt = from - 1, ...more }: Partial<Operation> & { askedAt?: number } = {},
  ): this {
    const common = { worker, op };
    const operation = { kind: "mutex", keys: ["a"], permits: 1, limit: 1, waitMs: 8_000, ...more } as const;
    const tokens = Object.fromEntries(operation.keys.map((key) => [key, String(this.#token++)]));
    return this.add(
      { event: "invoke", at: askedAt * MS, ...operation, ...common },
      { event: "granted", at: from * MS, tokens, ...common },
      { event: "asked", at: from * MS, leftMs, ...common },
    );
  }

  /** The worker runs all the time. */
  run(worker: number, from: number, to: number): this {
    for (let at = from; at <= to; at += 100) this.add({ event: "runs", at: at * MS, worker });
    return this;
  }

  fault(fault: string, id: number, workers: readonly number[] | null, from: number, to: number): this {
    const mark = { event: "fault", fault, id, workers } as const;
    return this.add({ ...mark, at: from * MS, phase: "begin" }, { ...mark, at: to * MS, phase: "end" });
  }

  kill(worker: number, at: number): this {
    return this.add({ event: "worker", at: at * MS, worker, pid: 1, phase: "killed", reason: "" });
  }

  judge(): Verdict {
    return judge(this.events);
  }
}

describe("unknown", () => {
  const events = writeHistory(3);
  const without = (...names: readonly HistoryEvent["event"][]): HistoryEvent[] =>
    events.filter(({ event }) => !names.includes(event));

  test("the history is ok", () => {
    expect(judge(events)).toMatchObject({ verdict: "ok", reasons: [] });
  });

  test("without a fault", () => {
    expect(judge(without("fault"))).toMatchObject({ verdict: "unknown", reasons: ["no fault was injected"] });
  });

  test("with faults that struck no operation", () => {
    const harmless = events.map((event) => (event.event === "fault" ? { ...event, workers: [77] } : event));
    expect(judge(harmless)).toMatchObject({
      verdict: "unknown",
      reasons: ["no fault took effect: none struck a process that held or waited"],
      figures: { effectiveFaults: 0 },
    });
  });

  test("with faults after the end of all operations", () => {
    const script = new Script()
      .hold(1, 1, 1, 2)
      .grant(1, 2, 1, 1, { keys: ["b"] })
      .kill(1, 3)
      .kill(2, 3)
      .fault("kill", 1, [1], 100, 100)
      .fault("store-kill", 2, null, 101, 102);
    expect(script.judge().figures).toMatchObject({ faults: { kill: 1, "store-kill": 1 }, effectiveFaults: 0 });
  });

  test("with little contention", () => {
    const script = new Script();
    for (let op = 0; op < 20; op++)
      script.hold(op % 2, op, 10 * op + 1, 10 * op + 10, { askedAt: 10 * op - (op > 0 ? 3 : 0) });
    script.fault("clock", 1, [1], 15, 15);
    script.add({ event: "healed", at: MS }, { event: "stopping", at: MS }, { event: "leftovers", at: MS, count: 0 });
    expect(script.judge()).toMatchObject({
      verdict: "unknown",
      reasons: [
        "only 19 locks were granted that another process held when they were asked for: at least 20 are needed",
      ],
    });
  });

  test.for(["healed", "stopping", "leftovers"] as const)("without %s", (name) => {
    expect(judge(without(name))).toMatchObject({ verdict: "unknown", reasons: ["the run was cut short"] });
  });

  test("a violation counts more", () => {
    const events = new Script().hold(1, 1, 10, 20).hold(2, 2, 15, 25).judge();
    expect(events).toMatchObject({ verdict: "violated", figures: { doubleHolds: 1, doubleHoldMs: 5 } });
    expect(events.reasons).not.toEqual([]);
  });

  test("permits that fit in pairs, and not together", () => {
    const permits = { kind: "permits", keys: ["p"], limit: 3 } as const;
    const script = new Script().hold(1, 1, 10, 30, permits).hold(2, 2, 11, 30, permits);
    expect(script.judge().violations).toEqual([]);
    expect(script.hold(3, 3, 20, 30, { ...permits, permits: 2 }).judge().violations).toEqual([
      {
        ...{ invariant: "exclusion", at: 20 * MS, key: "p", operations: ["1/1", "3/3"] },
        message: "4 of 3 permits were held at once, for 10 ms",
      },
    ]);
  });

  test("a store that cannot list its claims is no reason", () => {
    const unlisted = events.map((event) => (event.event === "leftovers" ? { ...event, count: null } : event));
    expect(judge(unlisted)).toMatchObject({ verdict: "ok", figures: { leftovers: null } });
  });
});

describe("what is legal", () => {
  const isLegal = (script: Script): void => expect(script.judge().violations).toEqual([]);

  test("a holder that was stopped before it said that it releases", () => {
    isLegal(new Script().grant(1, 1, 10, 50).hold(2, 2, 60, 70));
  });

  test("a lock that was granted, and was dead when it was asked about", () => {
    const script = new Script().grant(1, 1, 10, 0).hold(2, 2, 20, 30);
    script.add({ event: "asked", at: 25 * MS, worker: 1, op: 1, leftMs: 0 });
    isLegal(script);
    expect(script.judge().figures.grantsWithoutLease).toBe(1);
  });

  test("a holder that says no, and yes once the store has confirmed it, does not believe meanwhile", () => {
    const script = new Script().grant(1, 1, 10, 500);
    script.add(
      { event: "asked", at: 20 * MS, worker: 1, op: 1, leftMs: 0 },
      { event: "asked", at: 50 * MS, worker: 1, op: 1, leftMs: 500 },
    );
    isLegal(script.hold(2, 2, 30, 40));
  });

  test("a holder that was told a loss before the end of its lease", () => {
    const script = new Script().grant(1, 1, 10, 500);
    isLegal(script.add({ event: "lost", at: 20 * MS, worker: 1, op: 1, reason: "unknown" }).hold(2, 2, 21, 30));
  });

  test("a later answer replaces an earlier one", () => {
    const script = new Script().grant(1, 1, 10, 500);
    isLegal(script.add({ event: "asked", at: 12 * MS, worker: 1, op: 1, leftMs: 5 }).hold(2, 2, 18, 30));
  });

  test("a process that ends by itself holds until its last report", () => {
    const script = new Script().grant(1, 1, 10, 500).run(1, 10, 10);
    script.add({ event: "worker", at: 100 * MS, worker: 1, pid: 1, phase: "ended", reason: "code 1" });
    const { violations } = script.hold(2, 2, 30, 40).judge();
    expect(violations.map(({ invariant }) => invariant)).toEqual(["progress"]);
  });

  test("a process that is killed holds until then", () => {
    isLegal(new Script().grant(1, 1, 10, 500).kill(1, 20).hold(2, 2, 21, 40));
    expect(new Script().grant(1, 1, 10, 500).kill(1, 30).hold(2, 2, 21, 40).judge().verdict).toBe("violated");
  });

  test("a request that reaches the register after the lease", () => {
    const script = new Script().grant(1, 1, 10, 50).hold(2, 2, 60, 70);
    const common = { key: "a", value: 0 };
    script.add(
      { event: "enter", at: 61 * MS, worker: 2, op: 2, token: "2", accepted: true, ...common },
      { event: "enter", at: 62 * MS, worker: 1, op: 1, token: "1", accepted: false, ...common },
    );
    isLegal(script);
  });

  test("without tokens the register accepts everything", () => {
    const script = new Script().hold(1, 1, 10, 20).hold(2, 2, 30, 40);
    const common = { key: "a", value: 0, token: null, accepted: true };
    script.add(
      { event: "enter", at: 11 * MS, worker: 1, op: 1, ...common },
      { event: "enter", at: 31 * MS, worker: 2, op: 2, ...common },
      { event: "write", at: 32 * MS, worker: 1, op: 1, base: 0, ...common },
      { event: "write", at: 33 * MS, worker: 2, op: 2, base: 0, ...common },
    );
    isLegal(script);
    expect(script.judge().figures).toMatchObject({ staleWritesUnfenced: 1, staleWritesAccepted: 0, sections: 2 });
  });

  test("a holder that was stopped finds the kernel's lock of the next one", () => {
    const script = new Script().grant(1, 1, 10, 50).hold(2, 2, 60, 70);
    script.add(
      { event: "kernel", at: 61 * MS, worker: 2, op: 2, key: "a", taken: false },
      { event: "kernel", at: 65 * MS, worker: 1, op: 1, key: "a", taken: true },
      { event: "unlocked", at: 69 * MS, worker: 2, op: 2, key: "a" },
    );
    isLegal(script);
  });

  test("a holder finds the kernel's lock of one that was stopped, or killed with its flock(1) under way", () => {
    const taken: HistoryEvent = { event: "kernel", at: 61 * MS, worker: 2, op: 2, key: "a", taken: true };
    const stopped = new Script().grant(1, 1, 10, 40).hold(2, 2, 60, 70).add(taken);
    isLegal(stopped.add({ event: "kernel", at: 11 * MS, worker: 1, op: 1, key: "a", taken: false }));
    isLegal(new Script().grant(1, 1, 10, 500).kill(1, 55).hold(2, 2, 60, 70).add(taken));
  });

  test("a notice that comes late because the process was stopped", () => {
    const script = new Script().grant(1, 1, 10, 50).run(1, 0, 100).run(1, 5_000, 5_400);
    isLegal(script.add({ event: "lost", at: 5_100 * MS, worker: 1, op: 1, reason: "expired" }));
    expect(script.judge().figures).toMatchObject({ losses: 1, latestNoticeMs: 340 });
  });

  test("a request whose process does not run is not late", () => {
    const script = new Script().run(1, 0, 100);
    script.add({
      event: "invoke",
      at: MS,
      worker: 1,
      op: 1,
      kind: "mutex",
      keys: ["a"],
      permits: 1,
      limit: 1,
      waitMs: 10,
    });
    isLegal(script.add({ event: "refused", at: 20_000 * MS, worker: 1, op: 1, reason: "timeout" }));
  });

  test("a key that is kept by a request for several keys is not free", () => {
    const script = new Script().add({ event: "healed", at: 0 }).run(1, 0, 20_000).run(2, 0, 20_000);
    script.hold(1, 1, 15_000, 15_010, { kind: "several", keys: ["a", "b"], askedAt: 3_000 });
    isLegal(script.hold(2, 2, 15_020, 15_030, { askedAt: 4_000, waitMs: 16_000 }));
    expect(script.judge().figures.longestIdleMs).toBeLessThan(20);
  });

  test("a key that a failed request may have", () => {
    const script = new Script().add({ event: "healed", at: 0 }).run(1, 0, 9_000).run(2, 0, 9_000);
    script.add(
      {
        event: "invoke",
        at: 3_000 * MS,
        worker: 1,
        op: 1,
        kind: "mutex",
        keys: ["a"],
        permits: 1,
        limit: 1,
        waitMs: 4_000,
      },
      { event: "unknown", at: 7_000 * MS, worker: 1, op: 1, reason: "StoreError" },
    );
    isLegal(script.hold(2, 2, 7_900, 7_910, { askedAt: 3_100 }));
  });
});

describe("figures", () => {
  test("contended: another process held the key, in a way that excludes, when it was asked for", () => {
    const reader = { kind: "reader", limit: null } as const;
    const permits = { kind: "permits", keys: ["p"], limit: 3 } as const;
    const script = new Script()
      .hold(1, 1, 10, 20)
      .hold(2, 2, 30, 40, { askedAt: 15 })
      .hold(2, 3, 50, 60, { askedAt: 35 })
      .hold(1, 4, 70, 90, { askedAt: 65, ...reader })
      .hold(2, 5, 80, 95, { askedAt: 75, ...reader })
      .hold(3, 6, 100, 110, { askedAt: 85 })
      .hold(1, 7, 10, 20, permits)
      .hold(2, 8, 21, 30, { ...permits, askedAt: 15 });
    // 2 waited for 1, 6 for both readers, and 8 perhaps for 7; 3 for its own process; readers not for each other
    expect(script.judge().figures.contended).toBe(3);
  });

  test("overtaken: only requests that nothing had struck", () => {
    const strict = { kind: "strict" } as const;
    const overtaken = (): Script =>
      new Script()
        .hold(1, 1, 8_000, 8_010, { askedAt: 7_500, ...strict })
        .hold(2, 2, 8_100, 8_110, { askedAt: 7_000, ...strict });
    expect(overtaken().judge().figures.inversions).toBe(1);
    expect(overtaken().fault("kill", 1, [1], 7_100, 7_100).judge().figures.inversions).toBe(1);
    expect(overtaken().fault("pause", 1, [2], 7_100, 7_300).judge().figures.inversions).toBe(0);
    expect(overtaken().fault("store-kill", 1, null, 3_000, 4_000).judge().figures.inversions).toBe(0);
    expect(overtaken().fault("cut", 1, [1], 7_100, 7_100).judge().figures.inversions).toBe(0);
    const close = new Script()
      .hold(1, 1, 800, 801, { askedAt: 701, ...strict })
      .hold(2, 2, 810, 811, { askedAt: 700, ...strict });
    expect(close.judge().figures.inversions).toBe(0);
  });

  test("the next holder after a crash: of one that held when it died, where one waited", () => {
    const figures = (script: Script): readonly number[] => script.judge().figures.afterCrashMs;
    expect(figures(new Script().grant(1, 1, 10, 500).kill(1, 20).hold(2, 2, 60, 70, { askedAt: 15 }))).toEqual([40]);
    // none waited
    expect(figures(new Script().grant(1, 1, 10, 500).kill(1, 20).hold(2, 2, 60, 70, { askedAt: 30 }))).toEqual([]);
    // it had been stopped, and its lease had ended
    expect(figures(new Script().grant(1, 1, 10, 5).kill(1, 20).hold(2, 2, 60, 70, { askedAt: 12 }))).toEqual([]);
    // the next one may have waited for its other key
    const several = { kind: "several", keys: ["a", "b"], askedAt: 15 } as const;
    expect(figures(new Script().grant(1, 1, 10, 500).kill(1, 20).hold(2, 2, 60, 70, several))).toEqual([]);
  });

  test("the next holder after a crash: not where something else had struck, too", () => {
    const crash = (): Script => new Script().grant(1, 1, 9_010, 500).kill(1, 9_020);
    const wait = (script: Script): readonly number[] =>
      script.fault("kill", 0, [1], 9_019, 9_900).hold(2, 2, 9_060, 9_070, { askedAt: 9_015 }).judge().figures
        .afterCrashMs;
    expect(wait(crash())).toEqual([40]);
    expect(wait(crash().fault("pause", 1, [3], 5_000, 8_015))).toEqual([40]);
    expect(wait(crash().fault("pause", 1, [3], 5_000, 8_025))).toEqual([]);
    expect(wait(crash().fault("kill", 1, [3], 8_015, 9_500))).toEqual([40]);
    expect(wait(crash().fault("kill", 1, [3], 8_025, 8_025))).toEqual([]);
    expect(wait(crash().fault("store-pause", 1, null, 9_040, 9_045))).toEqual([]);
    expect(wait(crash().fault("store-pause", 1, null, 9_061, 9_065))).toEqual([40]);
  });

  test("grants by the store: not those with the next token in the same process", () => {
    // each hold gets the next token
    expect(new Script().hold(1, 1, 10, 20).hold(1, 2, 30, 40).judge().figures.storeGrants).toBe(1);
    expect(new Script().hold(1, 1, 10, 20).hold(2, 2, 30, 40).judge().figures.storeGrants).toBe(2);
    const several = { kind: "several", keys: ["a", "b"] } as const;
    expect(new Script().hold(1, 1, 10, 20, several).hold(1, 2, 30, 40, several).judge().figures.storeGrants).toBe(2);
    const unfenced = new Script()
      .hold(1, 1, 10, 20)
      .events.map((event) => (event.event === "granted" ? { ...event, tokens: null } : event));
    expect(judge(unfenced).figures.storeGrants).toBeNull();
  });

  test("the longest time that a free key was waited for: only after the repair", () => {
    const script = new Script().add({ event: "healed", at: 0 }).run(2, 0, 9_000);
    script.hold(2, 1, 1_500, 1_510, { askedAt: 10 });
    expect(script.judge().figures.longestIdleMs).toBe(0);
    script.hold(2, 2, 5_500, 5_510, { askedAt: 4_000 });
    expect(script.judge().figures.longestIdleMs).toBe(1_500);
  });
});
