import fc from "fast-check";
import { expect, test } from "vitest";
import { ALL_PERMITS, admittedCount } from "../../src/core/line.ts";
import { Table } from "../../src/core/table.ts";
import type { Hold } from "../../src/spi/driver.ts";
import { Bench, claimOf, hold, SECOND } from "./claims.ts";

const KEYS = ["a", "b", "c"];

const wishOf = fc
  .tuple(
    fc.subarray(KEYS, { minLength: 1 }),
    fc.constantFrom([ALL_PERMITS, ALL_PERMITS], [1, ALL_PERMITS], [1, 2], [2, 2]),
  )
  .map(([keys, [permits, limit]]) => keys.map((key) => hold(key, permits, limit)));

const command = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant("claim" as const), holds: wishOf, wait: fc.boolean() }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("release" as const), pick: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("renew" as const), pick: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("pass" as const), ms: fc.nat(12 * SECOND) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom("park" as const, "unpark" as const), pick: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("revoke" as const), pick: fc.nat(), now: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("wall" as const), ms: fc.integer({ min: -60, max: 60 }) }) },
);
type Command = typeof command extends fc.Arbitrary<infer C> ? C : never;

/** Runs random commands on a table and keeps what a checker needs to know. */
class Run {
  readonly bench = new Bench();
  readonly ids: string[] = [];
  made = 0;

  do(step: Command): void {
    const { bench } = this;
    const id = "pick" in step ? (this.ids[step.pick % Math.max(this.ids.length, 1)] ?? "none") : "";
    switch (step.do) {
      case "claim": {
        const name = `c${this.made++}`;
        this.ids.push(name);
        bench.claim(claimOf(name, step.holds, { wait: step.wait, tokens: 1 + (this.made % 3) }));
        break;
      }
      case "release":
        bench.release(id);
        break;
      case "renew":
        bench.renew(id);
        break;
      case "pass":
        bench.pass(step.ms);
        break;
      case "park":
        bench.table.park(id);
        break;
      case "unpark":
        bench.table.unpark(id);
        break;
      case "revoke":
        bench.revoke(KEYS[step.pick % 3] as string, [...bench.tokens.values()][step.pick] ?? 0, step.now);
        break;
      case "wall":
        bench.wall += step.ms * SECOND;
        break;
    }
    bench.collect();
  }

  check(): void {
    const { table } = this.bench;
    for (const line of table.mint.lines.values()) {
      const seats = [...line.seats];
      const admitted = seats.filter((seat) => seat.admitted);
      const places = seats.map(({ permits, limit, entry }) => ({ id: entry.claim.id, permits, limit }));
      expect(admitted.length).toBe(admittedCount(places));
      const holders = admitted.map(({ entry }) => entry).filter(({ held }) => held);
      // by each token of its run, and by none that lies behind it
      for (const { token, tokens } of holders) {
        for (let at = token; at <= token + tokens; at++) {
          expect(line.holderOf(at)).toBe(holders.find((one) => one.token <= at && at < one.token + one.tokens) ?? null);
        }
      }
      expect(line.holderOf(line.last + 1)).toBe(null);
    }
    for (const entry of table.entries.values()) {
      expect(entry.expiresAt).toBeGreaterThan(this.bench.now - 1);
      const all = entry.seats.length === entry.claim.holds.length && entry.seats.every((seat) => seat.admitted);
      expect(entry.held).toBe(all);
      // keys are taken in order: every line but the last entered has admitted it
      expect(entry.seats.slice(0, -1).every((seat) => seat.admitted)).toBe(true);
      expect(this.bench.tokens.has(entry.claim.id)).toBe(entry.held);
    }
  }
}

test("after any commands each line admits what the rule says, and claims hold exactly what all their lines admit", () => {
  fc.assert(
    fc.property(fc.array(command, { maxLength: 80 }), (steps) => {
      const run = new Run();
      for (const step of steps) {
        run.do(step);
        run.check();
      }
    }),
    { numRuns: 300 },
  );
});

test("tokens of a key rise with every grant, whatever the wall clock does", () => {
  fc.assert(
    fc.property(fc.array(command, { maxLength: 80 }), (steps) => {
      const run = new Run();
      const highest = new Map<string, number>();
      const seen = new Set<string>();
      for (const step of steps) {
        run.do(step);
        // several grants of one step are compared in the order of their tokens
        const fresh = [...run.bench.table.entries.values()].filter(({ claim, held }) => held && !seen.has(claim.id));
        for (const entry of fresh.sort((a, b) => a.token - b.token)) {
          seen.add(entry.claim.id);
          for (const { key } of entry.claim.holds) {
            expect(entry.token).toBeGreaterThan(highest.get(key) ?? 0);
            highest.set(key, entry.token + entry.tokens - 1);
          }
        }
      }
    }),
    { numRuns: 300 },
  );
});

test("nothing is left when all is released and its time has passed", () => {
  fc.assert(
    fc.property(fc.array(command, { maxLength: 80 }), (steps) => {
      const run = new Run();
      for (const step of steps) run.do(step);
      const { bench } = run;
      for (const id of run.ids) bench.release(id);
      expect(bench.table.entries.size).toBe(0);
      bench.wall += 3_600_000_000;
      bench.pass(60 * SECOND).pass(60 * SECOND);
      const { table } = bench;
      const left = [table.entries.size, table.endings.size, table.mint.lines.size];
      expect([...left, table.mint.lingers, table.nextDue()]).toEqual([0, 0, 0, false, null]);
    }),
    { numRuns: 300 },
  );
});

test("whoever takes keys in order, in one claim or nested, is granted in the end", () => {
  const flow = fc.array(wishOf, { minLength: 1, maxLength: 2 });
  fc.assert(
    fc.property(fc.array(flow, { minLength: 1, maxLength: 6 }), fc.infiniteStream(fc.nat()), (flows, picks) => {
      const bench = new Bench();
      const inOrder = flows.map((wishes) => inKeyOrder(wishes));
      const held = inOrder.map(() => 0);
      const claimId = (flowIndex: number, part: number): string => `f${flowIndex}.${part}`;
      const isHeld = (id: string): boolean => bench.table.entries.get(id)?.held === true;
      for (let turns = 0; held.some((_, index) => held[index] !== Number.POSITIVE_INFINITY); turns++) {
        expect(turns).toBeLessThan(100);
        const movable = inOrder.flatMap((wishes, index) => {
          const at = held[index] as number;
          if (at === Number.POSITIVE_INFINITY) return [];
          const asked = bench.table.entries.has(claimId(index, at));
          return at < wishes.length && asked && !isHeld(claimId(index, at)) ? [] : [index];
        });
        // somebody can always move, or the rest waits for ever
        expect(movable.length).toBeGreaterThan(0);
        const index = movable[picks.next().value % movable.length] as number;
        const wishes = inOrder[index] as Hold[][];
        const at = held[index] as number;
        if (at === wishes.length) {
          for (let part = at - 1; part >= 0; part--) bench.release(claimId(index, part));
          held[index] = Number.POSITIVE_INFINITY;
        } else if (isHeld(claimId(index, at))) held[index] = at + 1;
        else bench.claim(claimOf(claimId(index, at), wishes[at] as Hold[]));
      }
      expect(bench.table.entries.size).toBe(0);
    }),
    { numRuns: 300 },
  );
});

/** Nested claims whose keys rise: the second only has keys above all of the first. */
function inKeyOrder([outer, inner]: readonly Hold[][]): Hold[][] {
  const last = outer?.at(-1)?.key ?? "";
  const rest = (inner ?? []).filter(({ key }) => key > last);
  return rest.length === 0 ? [outer ?? []] : [outer ?? [], rest];
}

/** Found once: a claim of two keys waits at the second, and a reader is granted before it at the first. */
const PASSED_IN_ITS_FIRST_LINE: [Command[], number][] = [
  [
    [
      { do: "claim", holds: [hold("c", ALL_PERMITS, ALL_PERMITS)], wait: false },
      { do: "claim", holds: [hold("b", 2, 2), hold("c", 2, 2)], wait: true },
      { do: "claim", holds: [hold("b", 1, ALL_PERMITS)], wait: false },
      { do: "release", pick: 0 },
    ],
    0,
  ],
];

test("a table that starts again with what its clients assert grants on as if nothing had happened", () => {
  fc.assert(
    fc.property(fc.array(command, { maxLength: 50 }), fc.nat(), (steps, shuffle) => {
      const run = new Run();
      for (const step of steps.filter(({ do: what }) => what !== "park" && what !== "revoke")) run.do(step);
      const { bench } = run;
      const before = [...bench.table.entries.values()].sort((a, b) => a.arrival - b.arrival);
      const again = new Bench(new Table());
      again.now = bench.now;
      again.wall = bench.table.mint.clock;
      again.table.pause();
      again.pass(0);
      const order = before.toSorted((a, b) => ((a.arrival * 7 + shuffle) % 11) - ((b.arrival * 7 + shuffle) % 11));
      for (const { claim, held, token, tokens, arrival, expiresAt } of order) {
        if (held) expect(again.table.assertHeld(claim, "o", token, tokens, expiresAt - bench.now)).toBe(true);
        else again.claim(claim, "o", arrival);
      }
      again.table.resume();
      again.collect();
      for (const { claim, token, held } of before) {
        if (held) expect(again.table.entries.get(claim.id)?.token).toBe(token);
      }
      for (const line of again.table.mint.lines.values()) {
        const waiting = [...line.seats].filter((seat) => !seat.admitted).map((seat) => seat.entry.arrival);
        if (waiting.length > 0) expect([...line.seats].some((seat) => seat.admitted)).toBe(true);
      }
    }),
    { numRuns: 200, examples: PASSED_IN_ITS_FIRST_LINE },
  );
});
