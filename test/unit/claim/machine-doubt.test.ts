// Whether the store has confirmed a held claim, whether another claim waits for it, and who has it: what decides who may use it next.

import { describe, expect, test } from "vitest";
import { isReusable, isVerified, isWanted } from "../../../src/claim/machine.ts";
import { heldAnswer, MachineFixture, NONE_ANSWER, waitingAnswer } from "./machine-fixture.ts";

const recalledAnswer = { ...heldAnswer(), recalled: true } as const;

function isUsable(machine: MachineFixture, epoch = 0): boolean {
  return isReusable(machine.state, machine.now, epoch, machine.settings);
}

describe("doubt", () => {
  test("a failed renewal is told once, and ends with the next answer", () => {
    const machine = MachineFixture.answeredHeld().at(10_000).due();
    expect(machine.at(15_000).due().effects).toEqual(["jeopardy"]);
    expect(isUsable(machine)).toBe(false);
    expect(machine.at(15_020).due().effects).toEqual(["renew"]);
    expect(machine.at(20_020).due().effects).toEqual([]);
    expect(machine.at(20_100).due().answered(heldAnswer()).effects).toEqual(["restored"]);
    expect(isUsable(machine)).toBe(true);
  });

  test("the answer to a call from before a step of the store's clock does not end it", () => {
    const machine = MachineFixture.answeredHeld().at(10_000).due();
    expect(machine.clockStepped(1).effects).toEqual(["jeopardy"]);
    expect(machine.answered(heldAnswer(), machine.call, 0).effects).toEqual(["renew"]);
    expect(machine.state).toMatchObject({ doubtfulSince: 1 });
    expect(isVerified(machine.state, 1)).toBe(false);
    expect(machine.answered(heldAnswer(), machine.call, 1).effects).toEqual(["restored"]);
    expect(isUsable(machine, 1)).toBe(true);
  });

  test("a step of the store's clock asks at once, and a second one tells nothing new", () => {
    const machine = MachineFixture.answeredHeld().at(100);
    expect(machine.clockStepped(1).effects).toEqual(["jeopardy", "renew"]);
    expect(machine.clockStepped(2).effects).toEqual([]);
    expect(machine.answered(heldAnswer(), machine.call, 1).effects).toEqual(["renew"]);
    expect(machine.answered(heldAnswer(), machine.call, 2).effects).toEqual(["restored"]);
  });

  test("while not granted a step of the store's clock only asks again", () => {
    expect(MachineFixture.answeredWaiting().clockStepped(1).effects).toEqual(["renew"]);
    const machine = new MachineFixture().clockStepped(1).answered(heldAnswer());
    expect(machine.effects).toEqual(["grant", "renew"]);
    expect(isVerified(machine.state, 1)).toBe(false);
  });

  test("the late answer to an earlier call counts for its own epoch", () => {
    const machine = MachineFixture.answeredHeld().at(10_000).due().at(15_000).due().at(15_020).due();
    machine.answered(heldAnswer(), machine.call - 1, 1);
    expect(isVerified(machine.state, 1)).toBe(true);
    expect(isUsable(machine, 1)).toBe(false);
    machine.answered(heldAnswer(), machine.call, 0);
    expect(isVerified(machine.state, 1)).toBe(true);
  });

  test("what is not held is neither verified nor usable", () => {
    const machine = MachineFixture.answeredWaiting();
    expect([isVerified(machine.state, 0), isUsable(machine)]).toEqual([false, false]);
  });

  test("less than 45 % of the lease is too little for another request", () => {
    const machine = MachineFixture.answeredHeld();
    expect(isUsable(machine.at(13_499))).toBe(true);
    expect(isUsable(machine.at(13_500))).toBe(false);
  });
});

describe("recall", () => {
  test("of a held claim: told once, whether a push or an answer says it", () => {
    const machine = MachineFixture.answeredHeld();
    expect(isWanted(machine.state)).toBe(false);
    expect(machine.apply({ type: "recalled" }).effects).toEqual(["recall"]);
    expect(machine.apply({ type: "recalled" }).effects).toEqual([]);
    expect(machine.at(10_000).due().answered(recalledAnswer).effects).toEqual([]);
    expect(isWanted(machine.state)).toBe(true);
    expect(MachineFixture.answeredHeld().at(10_000).due().answered(recalledAnswer).effects).toEqual(["recall"]);
    expect(MachineFixture.answeredHeld().pushed(recalledAnswer).effects).toEqual(["recall"]);
  });

  test("in the answer to a call that is repeated, or to an earlier one", () => {
    const repeating = MachineFixture.answeredHeld().at(10_000).due().recheck();
    expect(repeating.answered(recalledAnswer).effects).toEqual(["renew", "recall"]);
    const machine = MachineFixture.answeredHeld().at(10_000).due().at(15_000).due().at(15_020).due();
    expect(machine.answered(recalledAnswer, machine.call - 1).effects).toEqual(["recall"]);
  });

  test("before the grant or with it: the grant knows", () => {
    const early = MachineFixture.answeredWaiting().apply({ type: "recalled" });
    expect(early.effects).toEqual([]);
    early.at(10_000).due().answered(waitingAnswer());
    expect(early.at(11_000).pushed(heldAnswer()).effects).toContain("grant");
    expect(isWanted(early.state)).toBe(true);
    const granted = new MachineFixture().answered(recalledAnswer);
    expect(granted.effects).toEqual(["grant"]);
    expect(isWanted(granted.state)).toBe(true);
  });

  test("what has ended is not wanted", () => {
    const lost = MachineFixture.answeredHeld().apply({ type: "recalled" }).at(10_000).due().answered(NONE_ANSWER);
    expect(lost.state.status).toBe("lost");
    expect([isWanted(lost.state), isWanted(lost.release().state)]).toEqual([false, false]);
  });
});

describe("transfer", () => {
  test("a claim that is being detached serves no other request here, and is renewed on", () => {
    const machine = MachineFixture.answeredHeld().apply({ type: "detaching", isShortening: false });
    expect(isUsable(machine)).toBe(false);
    expect(machine.at(10_000).due().effects).toEqual(["renew"]);
    expect(machine.answered(heldAnswer()).state).toMatchObject({ transfer: "detaching" });
  });

  test("one whose lease is being shortened is not renewed: that would restart the full lease", () => {
    const machine = MachineFixture.answeredHeld().apply({ type: "detaching", isShortening: true });
    expect(machine.nextWakeAt).toBe(27_000);
    expect(machine.at(10_000).due().effects).toEqual([]);
    expect(machine.recheck().effects).toEqual([]);
    expect(machine.at(27_000).due().effects).toEqual(["lose"]);
  });

  test("after a sleep past the lease it is asked about no more", () => {
    const machine = MachineFixture.answeredHeld().apply({ type: "detaching", isShortening: true });
    expect(machine.at(100).suspend(40_000).effects).toEqual([]);
    expect(machine.nextWakeAt).toBe(5_100);
    expect(machine.at(5_100).due().effects).toEqual(["lose"]);
  });

  test("not granted yet, it cannot be detached", () => {
    expect(MachineFixture.answeredWaiting().apply({ type: "detaching", isShortening: true })).toMatchObject({
      effects: [],
      state: { status: "waiting" },
    });
  });

  test("the claim of another client now: no late answer releases it", () => {
    const machine = MachineFixture.answeredHeld().at(10_000).due().apply({ type: "transferred" });
    expect(machine.effects).toEqual([]);
    expect(machine.answered(heldAnswer(), 2)).toMatchObject({ effects: [], state: { status: "done" } });
  });
});
