import { describe, expect, test } from "vitest";
import { heldAnswer, MachineFixture, NONE_ANSWER, waitingAnswer } from "./machine-fixture.ts";

const OTHER_ANSWER = heldAnswer(30_000, 200n);

describe("a held claim", () => {
  test("answered late: the lease is not lengthened", () => {
    const machine = new MachineFixture().at(20_000).pushed(heldAnswer());
    expect(machine.at(26_999).isHeld).toBe(true);
    expect(machine.at(27_000).isHeld).toBe(false);
  });

  test("due at a third of the lease after the send: renewed, and the deadline moves from that send", () => {
    const machine = MachineFixture.answeredHeld();
    expect(machine.nextWakeAt).toBe(10_000);
    expect(machine.at(9_999).due().effects).toEqual([]);
    expect(machine.at(10_000).due().effects).toEqual(["renew"]);
    expect(machine.at(14_000).answered(heldAnswer())).toMatchObject({ effects: [], state: { deadline: 37_000 } });
    expect(machine.nextWakeAt).toBe(20_000);
  });

  test("due soon: a renewal may join other calls, but only one at a time", () => {
    const machine = MachineFixture.answeredHeld();
    expect(machine.at(8_000).due(1_999).effects).toEqual([]);
    expect(machine.at(8_000).due(2_000).effects).toEqual(["renew"]);
    expect(machine.due(10_000).effects).toEqual([]);
  });

  test("looked up without an extension: the deadline stays, and the renewal is due as before", () => {
    const machine = MachineFixture.answeredHeld().at(3_000).recheck().at(3_100).answered(heldAnswer(27_000));
    expect(machine.state).toMatchObject({ deadline: 3_000 + 0.9 * 27_000 });
    expect(machine.nextWakeAt).toBe(10_000);
    // less than what is known already
    machine.at(5_000).recheck().answered(heldAnswer(20_000));
    expect(machine.state).toMatchObject({ deadline: 27_300 });
  });

  test("answered with more than was requested: the excess is ignored", () => {
    expect(MachineFixture.answeredHeld({}, heldAnswer(1_000_000)).state).toMatchObject({
      deadline: 27_000,
      dueAt: 10_000,
    });
  });

  test("never extended by the store: not renewed in a busy loop", () => {
    const machine = MachineFixture.answeredHeld({}, heldAnswer(12_000));
    let calls = 0;
    for (
      ;
      machine.state.status === "held" && calls < 1_000;
      machine.at(Math.max(machine.nextWakeAt, machine.now)).due()
    ) {
      if (!machine.effects.includes("renew")) continue;
      calls++;
      machine.answered(heldAnswer(Math.max(12_000 - machine.now, 0)));
    }
    expect(machine.now).toBeGreaterThanOrEqual(10_800);
    expect(calls).toBeLessThan(200);
  });

  test("answered or pushed none: lost, for the reason that the store gives", () => {
    const machine = MachineFixture.answeredHeld()
      .at(10_000)
      .due()
      .at(10_100)
      .answered({ state: "none", reason: "revoked" });
    expect(machine).toMatchObject({
      effects: ["lose"],
      state: { status: "lost", reason: "revoked", forgottenAt: 40_100 },
    });
    expect(MachineFixture.answeredHeld().at(10_000).due().answered(NONE_ANSWER).state).toMatchObject({
      reason: "unknown",
    });
    expect(MachineFixture.answeredHeld().pushed(NONE_ANSWER).state).toMatchObject({
      status: "lost",
      reason: "unknown",
    });
    expect(MachineFixture.answeredHeld().pushed({ state: "none", reason: "expired" }).state).toMatchObject({
      reason: "expired",
    });
  });

  test("answered with another token, or waiting to a call sent after the grant: lost", () => {
    expect(MachineFixture.answeredHeld().at(10_000).due().answered(OTHER_ANSWER).state).toMatchObject({
      status: "lost",
      reason: "unknown",
    });
    expect(MachineFixture.answeredHeld().at(10_000).due().answered(waitingAnswer()).state).toMatchObject({
      status: "lost",
    });
  });

  test("answered waiting to a call sent before the grant was known: ignored, since the answer is older than the grant", () => {
    const machine = MachineFixture.answeredWaiting().at(10_000).due().at(10_100).pushed(heldAnswer(29_900));
    expect(machine.at(10_200).answered(waitingAnswer()).state).toMatchObject({
      status: "held",
      callState: { sentAt: null },
    });
    const rechecked = MachineFixture.answeredWaiting().at(10_000).due().at(10_100).pushed(heldAnswer(29_900)).recheck();
    expect(rechecked.at(10_200).answered(waitingAnswer())).toMatchObject({
      effects: ["renew"],
      state: { status: "held" },
    });
    expect(rechecked.at(10_300).answered(waitingAnswer()).state.status).toBe("lost");
  });

  test("answered none to a call sent before the grant was known: lost, since none leaves no trace", () => {
    const machine = MachineFixture.answeredWaiting().at(10_000).due().at(10_100).pushed(heldAnswer(29_900));
    expect(machine.at(10_200).answered(NONE_ANSWER).effects).toEqual(["lose"]);
  });

  test("pushed with another token, or waiting: renewed, since a push may be outdated", () => {
    expect(MachineFixture.answeredHeld().at(1).pushed(OTHER_ANSWER)).toMatchObject({
      effects: ["renew"],
      state: { status: "held" },
    });
    expect(MachineFixture.answeredHeld().at(1).pushed(waitingAnswer()).effects).toEqual(["renew"]);
    expect(MachineFixture.answeredHeld().at(1).pushed(heldAnswer()).effects).toEqual([]);
  });

  test("recheck: renewed; while a call is in flight, renewed when it settles", () => {
    const machine = MachineFixture.answeredHeld().at(1).recheck();
    expect(machine.effects).toEqual(["renew"]);
    expect(machine.recheck().effects).toEqual([]);
    expect(machine.at(2).answered(heldAnswer()).effects).toEqual(["renew"]);
    expect(machine.at(3).answered(heldAnswer()).effects).toEqual([]);
  });

  test("failed: doubtful once, tried again soon, restored by the next answer; the lease continues", () => {
    const machine = MachineFixture.answeredHeld().at(10_000).due().at(10_100).failCall();
    expect(machine.effects).toEqual(["jeopardy"]);
    expect(machine.isHeld).toBe(true);
    expect(machine.at(machine.nextWakeAt).due().effects).toEqual(["renew"]);
    expect(machine.failCall().effects).toEqual([]);
    machine.at(machine.nextWakeAt).due().recheck();
    expect(machine.answered(heldAnswer()).effects).toEqual(["restored", "renew"]);
    expect(machine.answered(heldAnswer()).effects).toEqual([]);
  });

  test("not answered within a sixth of the lease: as if failed; the late failure changes nothing", () => {
    const machine = MachineFixture.answeredHeld().at(10_000).due();
    expect(machine.nextWakeAt).toBe(15_000);
    expect(machine.at(15_000).due().effects).toEqual(["jeopardy"]);
    expect(machine.failCall().effects).toEqual([]);
    machine.at(15_020).due();
    expect(machine.failCall(false, 2).effects).toEqual([]);
    // four attempts fit before the end
    expect(machine.nextWakeAt).toBe(20_020);
  });

  test("answered after the call was abandoned: extended from its own send, and no more", () => {
    const machine = MachineFixture.answeredHeld().at(10_000).due().at(15_000).due().at(15_020).due().at(16_000);
    expect(machine.answered(heldAnswer(), 2).state).toMatchObject({ deadline: 37_000, callState: { sentAt: 15_020 } });
    expect(machine.answered(NONE_ANSWER, 2).state.status).toBe("held");
    expect(machine.answered(waitingAnswer(), 2).state.status).toBe("held");
  });

  test("past the deadline: lost, whatever arrives later", () => {
    for (const last of ["due", "answered", "recheck"] as const) {
      const machine = MachineFixture.answeredHeld().at(10_000).due().at(27_000);
      if (last === "answered") machine.answered(heldAnswer());
      else machine[last]();
      expect(machine).toMatchObject({ effects: ["lose"], state: { status: "lost", reason: "expired" } });
    }
  });

  test("held for longer than maxHold: lost although the lease continues", () => {
    const machine = MachineFixture.answeredHeld().at(5).apply({ type: "maxHoldExceeded" });
    expect(machine).toMatchObject({ effects: ["lose"], state: { status: "lost", reason: "maxHold" } });
  });

  test("ended by its holder: released, even after the deadline", () => {
    expect(MachineFixture.answeredHeld().release()).toMatchObject({
      effects: ["release"],
      state: { status: "done", hasUnansweredClaim: false },
    });
    expect(MachineFixture.answeredHeld().at(27_000).release().effects).toEqual(["release"]);
  });
});

describe("a lost claim", () => {
  const createLost = (): MachineFixture => MachineFixture.answeredHeld().at(10_000).pushed(NONE_ANSWER);

  test("is released when the holder's body has ended, and not before", () => {
    const machine = createLost();
    expect(machine.at(10_001).answered(heldAnswer(), 1).effects).toEqual([]);
    expect(machine.recheck().effects).toEqual([]);
    expect(machine.due().effects).toEqual([]);
    expect(machine.release()).toMatchObject({ effects: ["release"], state: { status: "done" } });
  });

  test("is released as well when the store has forgotten it", () => {
    const machine = createLost();
    expect(machine.nextWakeAt).toBe(40_000);
    expect(machine.at(39_999).due().effects).toEqual([]);
    expect(machine.at(40_000).due().effects).toEqual(["release"]);
  });

  test("remembers that a claim call may still be in flight", () => {
    const machine = new MachineFixture().pushed(heldAnswer()).at(1).pushed(NONE_ANSWER);
    expect(machine.state).toMatchObject({ status: "lost", hasUnansweredClaim: true });
    expect(machine.release().state).toMatchObject({ status: "done", hasUnansweredClaim: true });
  });
});

describe("a claim of a session that lasts through silence", () => {
  const session = { survivesSilence: true };

  test("past the deadline: asks the store, and is unconfirmed until the answer", () => {
    const machine = MachineFixture.answeredHeld(session).at(27_000).due();
    expect(machine).toMatchObject({ effects: ["renew"], state: { status: "held" }, isHeld: false });
    expect(machine.at(27_100).answered(heldAnswer())).toMatchObject({ effects: [], isHeld: true });
  });

  test("lost when the store reports it, or cannot be reached for the session's length", () => {
    const endedMachine = MachineFixture.answeredHeld(session).at(27_000).due().at(27_100).answered(NONE_ANSWER);
    expect(endedMachine.effects).toEqual(["lose"]);
    const unansweredMachine = MachineFixture.answeredHeld(session).at(27_000).due();
    while (unansweredMachine.state.status === "held") unansweredMachine.at(unansweredMachine.nextWakeAt).due();
    expect(unansweredMachine.now).toBe(57_000);
  });
});

describe("a claim without renewal", () => {
  const settings = { renews: false };

  test("sets no timer, and ends with its lease", () => {
    const machine = MachineFixture.answeredHeld(settings);
    expect(machine.nextWakeAt).toBe(Number.POSITIVE_INFINITY);
    expect(machine.at(26_999).isHeld).toBe(true);
    expect(machine.at(27_000).isHeld).toBe(false);
    expect(machine.due().effects).toEqual(["lose"]);
  });

  test("a requested call is still completed", () => {
    const machine = MachineFixture.answeredHeld(settings).at(1_000).recheck();
    expect(machine.nextWakeAt).toBe(6_000);
    expect(machine.at(6_000).due().nextWakeAt).toBe(6_020);
  });
});

describe("a claim attached from another client", () => {
  test("asks at once and is unconfirmed until the answer restores it", () => {
    const machine = MachineFixture.resumed();
    expect(machine).toMatchObject({ effects: ["renew"], isHeld: false });
    expect(machine.at(100).answered(heldAnswer())).toMatchObject({ effects: ["restored"], isHeld: true });
    expect(machine.state).toMatchObject({ deadline: 27_000 });
  });

  test("on its release a late claim call of the first client must not enter the queue again", () => {
    expect(MachineFixture.resumed().answered(heldAnswer()).release().state).toMatchObject({
      status: "done",
      hasUnansweredClaim: true,
    });
  });

  test("is lost when the store does not know it, knows another token, or does not answer for a ttl", () => {
    expect(MachineFixture.resumed().answered({ state: "none", reason: "released" }).state).toMatchObject({
      status: "lost",
      reason: "released",
    });
    expect(MachineFixture.resumed().answered(OTHER_ANSWER).effects).toEqual(["lose"]);
    const unansweredMachine = MachineFixture.resumed();
    while (unansweredMachine.state.status === "held") unansweredMachine.at(unansweredMachine.nextWakeAt).due();
    expect(unansweredMachine.now).toBe(30_000);
  });
});
