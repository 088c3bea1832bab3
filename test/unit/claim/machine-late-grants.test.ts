// A grant that arrives too late does not count: its lease is over by the client's clock when the answer arrives.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { startClaim } from "../../../src/claim/machine.ts";
import { resumeClaim } from "../../../src/claim/resume.ts";
import type { ClaimEvent, ClaimSettings } from "../../../src/claim/state.ts";
import { heldAnswer, MachineFixture, NONE_ANSWER, waitingAnswer } from "./machine-fixture.ts";

describe("a grant whose lease is over by the client's clock", () => {
  test("answered with a lease shorter than the answer took: released, and another claim may be made", () => {
    const machine = new MachineFixture().at(1_500).answered(heldAnswer(1_000));
    expect(machine).toMatchObject({
      effects: ["release", "expire"],
      state: { status: "done", hasUnansweredClaim: false },
    });
  });

  test("counts up to the last moment of the lease", () => {
    expect(new MachineFixture().at(899).answered(heldAnswer(1_000)).effects).toEqual(["grant", "renew"]);
    expect(new MachineFixture().at(900).answered(heldAnswer(1_000)).effects).toEqual(["release", "expire"]);
  });

  test("answered to an abandoned call: released again, since the call in flight may still place the claim", () => {
    const machine = new MachineFixture().at(5_000).due().at(5_020).due().answered(heldAnswer(1_000), 1);
    expect(machine).toMatchObject({
      effects: ["release", "expire"],
      state: { status: "done", hasUnansweredClaim: true },
    });
  });

  test("without waiting: reported as too late, not as busy", () => {
    const machine = new MachineFixture({ wait: false }).at(1_500).answered(heldAnswer(1_000));
    expect(machine.effects).toEqual(["release", "expire"]);
  });

  test("sent before a sleep: the remaining lease counts from before the sleep", () => {
    const afterSleep = (remainingMs: number): MachineFixture =>
      new MachineFixture().at(10).suspend(2_000).at(20).answered(heldAnswer(remainingMs));
    expect(afterSleep(30_000).state).toMatchObject({ status: "held", deadline: 25_000 });
    expect(afterSleep(10_000).state).toMatchObject({ status: "held", deadline: 7_000 });
    expect(afterSleep(2_000).effects).toEqual(["release", "expire"]);
  });

  test("an attached claim stays unconfirmed, and asks again", () => {
    const machine = MachineFixture.resumed().at(1_500).answered(heldAnswer(1_000));
    expect(machine).toMatchObject({
      effects: ["renew"],
      isHeld: false,
      state: { status: "held", unconfirmedUntil: 30_000 },
    });
    expect(machine.at(1_510).answered(heldAnswer())).toMatchObject({ effects: ["restored"], isHeld: true });
    const unansweredMachine = MachineFixture.resumed().at(1_500).answered(heldAnswer(1_000)).at(30_000).due();
    expect(unansweredMachine.state).toMatchObject({ status: "lost", reason: "expired" });
  });
});

const arbitraryMs = fc.oneof(fc.nat(20), fc.nat(2_000), fc.nat(40_000));
const arbitraryAnswer = fc.oneof(
  fc
    .record({ left: arbitraryMs, token: fc.constantFrom(100n, 101n) })
    .map(({ left, token }) => heldAnswer(left, token)),
  fc.record({ left: arbitraryMs, recheck: arbitraryMs }).map(({ left, recheck }) => waitingAnswer(left, recheck)),
  fc.constant(NONE_ANSWER),
);
/** An input, and how long after the previous one. `call`: which of the calls sent so far is answered, from the last. */
const arbitraryEvent = fc.record({
  after: fc.oneof(fc.constant(0), arbitraryMs),
  call: fc.nat(3),
  random: fc.double({ min: 0, max: 1, noNaN: true }),
  byMs: arbitraryMs,
  answer: arbitraryAnswer,
  type: fc.constantFrom(
    "answered",
    "answered",
    "pushed",
    "failed",
    "fatal",
    "recheck",
    "due",
    "due",
    "suspended",
    "maxHoldExceeded",
    "recalled",
    "clockStepped",
    "detaching",
    "transferred",
  ),
});
type GeneratedEvent = typeof arbitraryEvent extends fc.Arbitrary<infer T> ? T : never;

function toClaimEvent(
  { type, call, random, byMs, answer: givenAnswer }: GeneratedEvent,
  machine: MachineFixture,
): ClaimEvent {
  const number = Math.max(machine.call - call, 1);
  const sentAt = machine.sentCalls.get(number) ?? 0;
  switch (type) {
    case "answered":
      return { type, call: number, sentAt, epoch: 0, answer: givenAnswer };
    case "pushed":
      return { type, answer: givenAnswer };
    case "failed":
    case "fatal":
      return { type: "failed", call: number, isFatal: type === "fatal", random };
    case "recheck":
    case "recalled":
    case "transferred":
      return { type };
    case "clockStepped":
      return { type, epoch: byMs };
    case "detaching":
      return { type, isShortening: random < 0.5 };
    case "suspended":
      return { type, byMs };
    case "maxHoldExceeded":
      return { type: "maxHoldExceeded" };
    default:
      return { type: "due", random, withinMs: 0 };
  }
}

const arbitrarySettings = fc.record({
  ttlMs: fc.constantFrom(1_000, 30_000),
  wait: fc.boolean(),
  survivesSilence: fc.boolean(),
  renews: fc.boolean(),
});
const arbitraryStart = fc.constantFrom(
  (claimSettings: ClaimSettings) => startClaim(claimSettings, 0),
  (claimSettings: ClaimSettings) => startClaim(claimSettings, 0, 50),
  (claimSettings: ClaimSettings) => resumeClaim(claimSettings, 0, 100n, 1),
);

test("after any sequence of inputs a granted or confirmed claim has a lease that is not over by the client's clock", () => {
  fc.assert(
    fc.property(
      arbitrarySettings,
      arbitraryStart,
      fc.array(arbitraryEvent, { maxLength: 12 }),
      (claimSettings, first, events) => {
        const machine = new MachineFixture(claimSettings, first);
        for (const event of events) {
          // a call is answered after it was sent
          machine.at(machine.now + event.after).apply(toClaimEvent(event, machine));
          const { effects } = machine;
          if (effects.includes("grant")) expect(machine).toMatchObject({ state: { status: "held" }, isHeld: true });
          if (effects.includes("restored")) expect(machine.isHeld).toBe(true);
        }
      },
    ),
    { numRuns: 20_000 },
  );
});
