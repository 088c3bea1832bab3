// A grant that comes too late is none: what the store granted is over by our clock when we hear of it.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { adopt, begin } from "../../src/core/claim.ts";
import type { ClaimEvent, Terms } from "../../src/core/claim-state.ts";
import { heldAnswer, Machine, NONE, waitingAnswer } from "./machine.ts";

describe("held, but over by our clock", () => {
  test("answered with less than the answer took: released, and another claim may be made", () => {
    const machine = new Machine().at(1_500).answered(heldAnswer(1_000));
    expect(machine).toMatchObject({ effects: ["release", "expire"], state: { at: "over", unanswered: false } });
  });

  test("to the last moment it counts", () => {
    expect(new Machine().at(899).answered(heldAnswer(1_000)).effects).toEqual(["grant", "renew"]);
    expect(new Machine().at(900).answered(heldAnswer(1_000)).effects).toEqual(["release", "expire"]);
  });

  test("the late answer of a call that was given up on: the one under way may still place it", () => {
    const machine = new Machine().at(5_000).due().at(5_020).due().answered(heldAnswer(1_000), 1);
    expect(machine).toMatchObject({ effects: ["release", "expire"], state: { at: "over", unanswered: true } });
  });

  test("asked once, it is not busy but too late", () => {
    const machine = new Machine({ wait: false }).at(1_500).answered(heldAnswer(1_000));
    expect(machine.effects).toEqual(["release", "expire"]);
  });

  test("a call sent before a sleep: what is left counts from before it", () => {
    const slept = (leftMs: number): Machine => new Machine().at(10).slept(2_000).at(20).answered(heldAnswer(leftMs));
    expect(slept(30_000).state).toMatchObject({ at: "held", deadline: 25_000 });
    expect(slept(10_000).state).toMatchObject({ at: "held", deadline: 7_000 });
    expect(slept(2_000).effects).toEqual(["release", "expire"]);
  });

  test("a taken up claim stays in doubt, and is asked about again", () => {
    const machine = Machine.adopted().at(1_500).answered(heldAnswer(1_000));
    expect(machine).toMatchObject({ effects: ["renew"], believes: false, state: { at: "held", doubtUntil: 30_000 } });
    expect(machine.at(1_510).answered(heldAnswer())).toMatchObject({ effects: ["restored"], believes: true });
    const silent = Machine.adopted().at(1_500).answered(heldAnswer(1_000)).at(30_000).due();
    expect(silent.state).toMatchObject({ at: "lost", reason: "expired" });
  });
});

const ms = fc.oneof(fc.nat(20), fc.nat(2_000), fc.nat(40_000));
const answer = fc.oneof(
  fc.record({ left: ms, token: fc.constantFrom(100n, 101n) }).map(({ left, token }) => heldAnswer(left, token)),
  fc.record({ left: ms, recheck: ms }).map(({ left, recheck }) => waitingAnswer(left, recheck)),
  fc.constant(NONE),
);
/** What happens, how long after what happened before. `call`: which of those sent so far is answered, from the last. */
const happening = fc.record({
  after: fc.oneof(fc.constant(0), ms),
  call: fc.nat(3),
  random: fc.double({ min: 0, max: 1, noNaN: true }),
  byMs: ms,
  answer,
  type: fc.constantFrom("answered", "answered", "pushed", "failed", "fatal", "notified", "due", "due", "slept", "over"),
});
type Happening = typeof happening extends fc.Arbitrary<infer T> ? T : never;

function eventOf({ type, call, random, byMs, answer: said }: Happening, machine: Machine): ClaimEvent {
  const number = Math.max(machine.call - call, 1);
  const sentAt = machine.sent.get(number) ?? 0;
  switch (type) {
    case "answered":
      return { type, call: number, sentAt, answer: said };
    case "pushed":
      return { type, answer: said };
    case "failed":
    case "fatal":
      return { type: "failed", call: number, fatal: type === "fatal", random };
    case "notified":
      return { type };
    case "slept":
      return { type, byMs };
    case "over":
      return { type: "overstayed", reason: "maxHold" };
    default:
      return { type: "due", random, withinMs: 0 };
  }
}

const terms = fc.record({
  ttlMs: fc.constantFrom(1_000, 30_000),
  wait: fc.boolean(),
  endures: fc.boolean(),
  renews: fc.boolean(),
});
const start = fc.constantFrom(
  (given: Terms) => begin(given, 0),
  (given: Terms) => begin(given, 0, 50),
  (given: Terms) => adopt(given, 0, 100n, 1),
);

test("whatever comes in whatever order: who is granted, or confirmed, has a lease that stands by our clock", () => {
  fc.assert(
    fc.property(terms, start, fc.array(happening, { maxLength: 12 }), (given, first, happenings) => {
      const machine = new Machine(given, first);
      for (const one of happenings) {
        // a call is answered after it was sent
        machine.at(machine.now + one.after).on(eventOf(one, machine));
        const { effects } = machine;
        if (effects.includes("grant")) expect(machine).toMatchObject({ state: { at: "held" }, believes: true });
        if (effects.includes("restored")) expect(machine.believes).toBe(true);
      }
    }),
    { numRuns: 20_000 },
  );
});
