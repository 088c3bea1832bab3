import { describe, expect, test } from "vitest";
import { startClaim } from "../../../src/claim/machine.ts";
import { heldAnswer, MachineFixture, NONE_ANSWER, waitingAnswer } from "./machine-fixture.ts";

describe("an asking claim", () => {
  test("asks at once, or when its delay is over", () => {
    expect(new MachineFixture()).toMatchObject({ effects: ["ask"], state: { status: "asking" } });
    const laterMachine = new MachineFixture({}, (claimSettings) => startClaim(claimSettings, 0, 50));
    expect(laterMachine.effects).toEqual([]);
    expect(laterMachine.nextWakeAt).toBe(50);
    expect(laterMachine.at(49).due().effects).toEqual([]);
    expect(laterMachine.at(50).due().effects).toEqual(["ask"]);
    expect(laterMachine.state).toMatchObject({ status: "asking", deadline: 27_050 });
  });

  test("answered held: granted, counted from the send", () => {
    const machine = new MachineFixture().at(2_000).answered(heldAnswer(29_000, 7n, 3));
    expect(machine.effects).toEqual(["grant"]);
    expect(machine.state).toMatchObject({
      status: "held",
      deadline: 26_100,
      token: 7n,
      tokenCount: 3,
      unconfirmedUntil: null,
    });
    expect(machine.isHeld).toBe(true);
  });

  test("answered with a shorter lease than requested: the shorter one counts, held or waiting", () => {
    expect(new MachineFixture().at(100).answered(heldAnswer(4_000)).state).toMatchObject({
      status: "held",
      deadline: 3_600,
    });
    expect(new MachineFixture().at(100).answered(waitingAnswer(4_000)).state).toMatchObject({
      status: "waiting",
      deadline: 3_600,
    });
  });

  test("answered waiting: wakes at the recheck or the renewal, whichever is sooner", () => {
    expect(MachineFixture.answeredWaiting({}, waitingAnswer(30_000, 4_000)).nextWakeAt).toBe(4_000);
    expect(MachineFixture.answeredWaiting({}, waitingAnswer(30_000, 20_000)).nextWakeAt).toBe(10_000);
  });

  test("answered none: the entry is lost before it was confirmed; another claim may be made", () => {
    const machine = new MachineFixture().answered(NONE_ANSWER);
    expect(machine).toMatchObject({ effects: ["expire"], state: { status: "done", hasUnansweredClaim: false } });
  });

  test("answered none after an unanswered call: released, so that the late call does not enter the queue", () => {
    const machine = new MachineFixture().at(5_000).due();
    expect(machine.at(machine.nextWakeAt).due().effects).toEqual(["ask"]);
    expect(machine.answered(NONE_ANSWER)).toMatchObject({
      effects: ["expire", "release"],
      state: { status: "done", hasUnansweredClaim: true },
    });
  });

  test("pushed none: ended and released, since the call in flight may still place the claim", () => {
    expect(new MachineFixture().pushed(NONE_ANSWER)).toMatchObject({
      effects: ["expire", "release"],
      state: { status: "done", hasUnansweredClaim: true },
    });
  });

  test("failed: asks again with the same id after a back-off", () => {
    const machine = new MachineFixture().at(100).failCall();
    expect(machine.effects).toEqual(["wait"]);
    expect(machine.nextWakeAt).toBe(120);
    expect(machine.at(120).due().effects).toEqual(["ask"]);
    expect(machine.at(130).failCall().nextWakeAt).toBe(170);
  });

  test("not answered within a sixth of the lease: the call is abandoned and sent again", () => {
    const machine = new MachineFixture();
    expect(machine.nextWakeAt).toBe(5_000);
    expect(machine.at(4_999).due().effects).toEqual([]);
    expect(machine.at(5_000).due().nextWakeAt).toBe(5_020);
    expect(machine.at(5_020).due().effects).toEqual(["ask"]);
  });

  test("a failure of an abandoned call changes nothing", () => {
    const machine = new MachineFixture().at(5_000).due();
    const { state } = machine;
    expect(machine.failCall().state).toBe(state);
    machine.at(5_020).due();
    expect(machine.failCall(true, 1).effects).toEqual([]);
    expect(machine.state.status).toBe("asking");
  });

  test("failed permanently: rejected, and released since the call may have reached the store", () => {
    expect(new MachineFixture().failCall(true)).toMatchObject({
      effects: ["reject", "release"],
      state: { status: "done", hasUnansweredClaim: true },
    });
  });

  test("pushed held while the call is in flight: granted, and the deadline still counts from the send", () => {
    const machine = new MachineFixture().at(3_000).pushed(heldAnswer(28_000));
    expect(machine.effects).toEqual(["grant"]);
    expect(machine.state).toMatchObject({ status: "held", deadline: 27_000, dueAt: 10_000 });
    // the answer in flight is older than the grant
    expect(machine.at(4_000).answered(waitingAnswer()).effects).toEqual([]);
    expect(machine.state.status).toBe("held");
  });

  test("a recheck while the call is in flight: asks again as soon as that call settles", () => {
    const machine = new MachineFixture().at(100).recheck();
    expect(machine.effects).toEqual([]);
    expect(machine.at(200).answered(waitingAnswer()).effects).toEqual(["renew", "wait"]);
    expect(new MachineFixture().recheck().at(200).answered(heldAnswer()).effects).toEqual(["grant", "renew"]);
    const failing = new MachineFixture().recheck().at(200).failCall();
    expect(failing.nextWakeAt).toBe(200);
    expect(failing.due().effects).toEqual(["ask"]);
  });

  test("past the deadline: ended, whatever arrives later", () => {
    for (const last of ["due", "answered", "pushed"] as const) {
      const machine = new MachineFixture().at(27_000);
      if (last === "due") machine.due();
      else machine[last](heldAnswer());
      expect(machine).toMatchObject({
        effects: ["release", "expire"],
        state: { status: "done", hasUnansweredClaim: true },
      });
    }
  });

  test("cancelled: released", () => {
    expect(new MachineFixture().release()).toMatchObject({
      effects: ["release"],
      state: { status: "done", hasUnansweredClaim: true },
    });
  });

  test("ended for maxHold: ignored, since the claim is not held yet", () => {
    const machine = new MachineFixture().apply({ type: "maxHoldExceeded" });
    expect(machine).toMatchObject({ effects: [], state: { status: "asking" } });
  });
});

describe("a claim that does not wait", () => {
  const settings = { wait: false };

  test("is refused as busy, and releases what the store may have kept", () => {
    expect(new MachineFixture(settings).answered(NONE_ANSWER).effects).toEqual(["refuse"]);
    expect(new MachineFixture(settings).answered(waitingAnswer()).effects).toEqual(["refuse", "release"]);
    expect(new MachineFixture(settings).pushed(NONE_ANSWER).effects).toEqual(["refuse", "release"]);
  });

  test("ends with a failure, or without an answer in time", () => {
    expect(new MachineFixture(settings).failCall().effects).toEqual(["reject", "release"]);
    expect(new MachineFixture(settings).at(5_000).due().effects).toEqual(["reject", "release"]);
  });

  test("is granted when it is answered held", () => {
    expect(MachineFixture.answeredHeld(settings).effects).toEqual(["grant"]);
  });
});

describe("a late answer of an abandoned call", () => {
  /** Two calls in flight, the first abandoned. */
  function twice(): MachineFixture {
    const machine = new MachineFixture().at(5_000).due();
    return machine.at(machine.nextWakeAt).due().at(6_000);
  }

  test("held counts, from its own send", () => {
    const machine = twice().answered(heldAnswer(), 1);
    expect(machine.effects).toEqual(["grant"]);
    expect(machine.state).toMatchObject({ status: "held", deadline: 27_000 });
    // the other call may be older than the grant, but "held" extends
    expect(machine.at(7_000).answered(heldAnswer()).state).toMatchObject({ status: "held", deadline: 5_020 + 27_000 });
  });

  test("waiting and none may be outdated and are ignored", () => {
    expect(twice().answered(NONE_ANSWER, 1)).toMatchObject({ effects: [], state: { status: "asking" } });
    expect(twice().answered(waitingAnswer(), 1)).toMatchObject({ effects: [], state: { status: "asking" } });
  });

  test("counts as in time while no call is in flight", () => {
    const machine = new MachineFixture().at(5_000).due().at(5_010).answered(waitingAnswer());
    expect(machine.state).toMatchObject({ status: "waiting", callState: { failures: 0 } });
  });
});

describe("a waiting claim", () => {
  test("due: renewed", () => {
    const machine = MachineFixture.answeredWaiting();
    expect(machine.at(9_999).due().effects).toEqual([]);
    expect(machine.at(10_000).due().effects).toEqual(["renew"]);
    expect(machine.at(10_500).answered(waitingAnswer()).state).toMatchObject({ status: "waiting", deadline: 37_000 });
  });

  test("due soon: a call may join others, but only one at a time", () => {
    const machine = MachineFixture.answeredWaiting();
    expect(machine.at(9_000).due(999).effects).toEqual([]);
    expect(machine.at(9_000).due(1_000).effects).toEqual(["renew"]);
    expect(machine.at(9_001).due(10_000).effects).toEqual([]);
  });

  test("answered or pushed held: granted", () => {
    const machine = MachineFixture.answeredWaiting().at(10_000).due().at(10_100).answered(heldAnswer());
    expect(machine).toMatchObject({ effects: ["grant"], state: { status: "held", deadline: 37_000 } });
    const pushedMachine = MachineFixture.answeredWaiting().at(8_000).pushed(heldAnswer(22_000));
    expect(pushedMachine).toMatchObject({ effects: ["grant"], state: { status: "held", deadline: 27_000 } });
  });

  test("pushed held with little of the lease left: granted and renewed at once", () => {
    const machine = MachineFixture.answeredWaiting().at(14_000).pushed(heldAnswer(16_000));
    expect(machine.effects).toEqual(["grant", "renew"]);
    const under = MachineFixture.answeredWaiting().at(10_000).due().at(14_000).pushed(heldAnswer(16_000));
    expect(under.effects).toEqual(["grant"]);
    expect(under.at(14_001).answered(heldAnswer()).effects).toEqual(["renew"]);
    const quiet = MachineFixture.answeredWaiting({ renews: false }).at(14_000).pushed(heldAnswer(16_000));
    expect(quiet.effects).toEqual(["grant"]);
  });

  test("pushed with a shorter lease than the client's own: a recheck only", () => {
    const machine = MachineFixture.answeredWaiting().at(8_000).pushed(heldAnswer(1_000));
    expect(machine).toMatchObject({ effects: ["renew"], state: { status: "waiting" } });
    expect(machine.at(8_100).answered(heldAnswer()).effects).toEqual(["grant"]);
  });

  test("pushed waiting, or a recheck: renewed", () => {
    expect(MachineFixture.answeredWaiting().at(1).pushed(waitingAnswer()).effects).toEqual(["renew"]);
    expect(MachineFixture.answeredWaiting().at(1).recheck().effects).toEqual(["renew"]);
  });

  test("a recheck while a call is in flight: renewed again when it settles", () => {
    const machine = MachineFixture.answeredWaiting().at(10_000).due().recheck().recheck();
    expect(machine.effects).toEqual([]);
    expect(machine.at(10_100).answered(waitingAnswer()).effects).toEqual(["renew"]);
    expect(machine.at(10_200).answered(waitingAnswer()).effects).toEqual([]);
  });

  test("answered or pushed none: the entry is lost and released", () => {
    const machine = MachineFixture.answeredWaiting().at(10_000).due().answered(NONE_ANSWER);
    expect(machine).toMatchObject({
      effects: ["expire", "release"],
      state: { status: "done", hasUnansweredClaim: false },
    });
    expect(MachineFixture.answeredWaiting().pushed(NONE_ANSWER).effects).toEqual(["expire", "release"]);
  });

  test("failed: tried again, and the deadline stays; failed permanently: rejected", () => {
    const machine = MachineFixture.answeredWaiting().at(10_000).due().at(10_100).failCall();
    expect(machine.state).toMatchObject({ status: "waiting", deadline: 27_000 });
    expect(machine.at(10_120).due().effects).toEqual(["renew"]);
    expect(machine.failCall(true).effects).toEqual(["reject", "release"]);
  });

  test("answered without an extension: the deadline stays", () => {
    const machine = MachineFixture.answeredWaiting().at(10_000).due().at(10_100).answered(waitingAnswer(20_000));
    expect(machine.state).toMatchObject({ status: "waiting", deadline: 10_000 + 18_000 });
  });

  test("past the deadline: ended", () => {
    const machine = MachineFixture.answeredWaiting().at(27_000);
    expect(machine.due()).toMatchObject({
      effects: ["release", "expire"],
      state: { status: "done", hasUnansweredClaim: false },
    });
    expect(MachineFixture.answeredWaiting().at(27_000).pushed(heldAnswer()).effects).toEqual(["release", "expire"]);
  });

  test("answered held with a lease that was over on arrival: not granted", () => {
    const machine = MachineFixture.answeredWaiting().at(10_000).due();
    expect(machine.at(26_999).answered(heldAnswer(10)).effects).toEqual(["grant", "renew"]);
    const lateMachine = MachineFixture.answeredWaiting().suspend(1).at(26_998).answered(heldAnswer(), 2);
    expect(lateMachine.state.status).toBe("held");
    const machineLate = new MachineFixture({ survivesSilence: true }).at(27_000).answered(heldAnswer());
    expect(machineLate.state).toMatchObject({ status: "held", deadline: 57_000 });
  });

  test("cancelled: released", () => {
    expect(MachineFixture.answeredWaiting().release().effects).toEqual(["release"]);
  });
});

describe("a waiting claim of a session that lasts through silence", () => {
  const session = { survivesSilence: true };

  test("past the deadline: asks, unless the store does not answer", () => {
    const pendingMachine = MachineFixture.answeredWaiting(session).at(27_000).due();
    expect(pendingMachine).toMatchObject({ effects: ["renew"], state: { status: "waiting", deadline: 57_000 } });
    const failing = MachineFixture.answeredWaiting(session).at(10_000).due().at(10_100).failCall().at(27_000).due();
    expect(failing.effects).toEqual(["release", "expire"]);
  });

  test("a grant pushed after the deadline counts", () => {
    expect(MachineFixture.answeredWaiting(session).at(27_000).pushed(heldAnswer())).toMatchObject({
      effects: ["grant"],
      state: { status: "held" },
    });
  });
});

describe("an ended claim", () => {
  test("is released again on any sign that the store keeps an entry", () => {
    const createEnded = (): MachineFixture => new MachineFixture().release();
    expect(createEnded().answered(heldAnswer(), 1).effects).toEqual(["release"]);
    expect(createEnded().answered(waitingAnswer(), 1).effects).toEqual(["release"]);
    expect(createEnded().pushed(heldAnswer()).effects).toEqual(["release"]);
    expect(createEnded().answered(NONE_ANSWER, 1).effects).toEqual([]);
    expect(createEnded().recheck().effects).toEqual([]);
    expect(createEnded().nextWakeAt).toBe(Number.POSITIVE_INFINITY);
    expect(createEnded().isHeld).toBe(false);
  });
});
