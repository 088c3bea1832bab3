import { describe, expect, test } from "vitest";
import { heldAnswer, Machine, NONE, waitingAnswer } from "./machine.ts";

const OTHER = heldAnswer(30_000, 200n);

describe("held", () => {
  test("a grant that arrives late does not lengthen the lease", () => {
    const machine = new Machine().at(20_000).pushed(heldAnswer());
    expect(machine.at(26_999).believes).toBe(true);
    expect(machine.at(27_000).believes).toBe(false);
  });

  test("due at a third of the lease after the send: renewed, and the deadline moves from that send", () => {
    const machine = Machine.held();
    expect(machine.wakesAt).toBe(10_000);
    expect(machine.at(9_999).due().effects).toEqual([]);
    expect(machine.at(10_000).due().effects).toEqual(["renew"]);
    expect(machine.at(14_000).answered(heldAnswer())).toMatchObject({ effects: [], state: { deadline: 37_000 } });
    expect(machine.wakesAt).toBe(20_000);
  });

  test("due soon: a renewal may ride along with others, but only one at a time", () => {
    const machine = Machine.held();
    expect(machine.at(8_000).due(1_999).effects).toEqual([]);
    expect(machine.at(8_000).due(2_000).effects).toEqual(["renew"]);
    expect(machine.due(10_000).effects).toEqual([]);
  });

  test("a look that extended nothing moves no deadline, and the renewal is due as if it had not been", () => {
    const machine = Machine.held().at(3_000).notified().at(3_100).answered(heldAnswer(27_000));
    expect(machine.state).toMatchObject({ deadline: 3_000 + 0.9 * 27_000 });
    expect(machine.wakesAt).toBe(10_000);
    // less than what is known already
    machine.at(5_000).notified().answered(heldAnswer(20_000));
    expect(machine.state).toMatchObject({ deadline: 27_300 });
  });

  test("a store that claims more than was asked for is not believed", () => {
    expect(Machine.held({}, heldAnswer(1_000_000)).state).toMatchObject({ deadline: 27_000, dueAt: 10_000 });
  });

  test("a store that never lengthens the lease is not asked in a busy loop", () => {
    const machine = Machine.held({}, heldAnswer(12_000));
    let calls = 0;
    for (; machine.state.at === "held" && calls < 1_000; machine.at(Math.max(machine.wakesAt, machine.now)).due()) {
      if (!machine.effects.includes("renew")) continue;
      calls++;
      machine.answered(heldAnswer(Math.max(12_000 - machine.now, 0)));
    }
    expect(machine.now).toBeGreaterThanOrEqual(10_800);
    expect(calls).toBeLessThan(200);
  });

  test("answered or pushed none: lost, for the reason the store gives", () => {
    const answered = Machine.held().at(10_000).due().at(10_100).answered({ state: "none", reason: "revoked" });
    expect(answered).toMatchObject({ effects: ["lose"], state: { at: "lost", reason: "revoked", forgetAt: 40_100 } });
    expect(Machine.held().at(10_000).due().answered(NONE).state).toMatchObject({ reason: "unknown" });
    expect(Machine.held().pushed(NONE).state).toMatchObject({ at: "lost", reason: "unknown" });
    expect(Machine.held().pushed({ state: "none", reason: "expired" }).state).toMatchObject({ reason: "expired" });
  });

  test("answered with another token, or waiting to a call sent after the grant: lost", () => {
    expect(Machine.held().at(10_000).due().answered(OTHER).state).toMatchObject({ at: "lost", reason: "unknown" });
    expect(Machine.held().at(10_000).due().answered(waitingAnswer()).state).toMatchObject({ at: "lost" });
  });

  test("answered waiting to a call sent before the grant was known: older than the grant", () => {
    const machine = Machine.waiting().at(10_000).due().at(10_100).pushed(heldAnswer(29_900));
    expect(machine.at(10_200).answered(waitingAnswer()).state).toMatchObject({ at: "held", talk: { sentAt: null } });
    const nudged = Machine.waiting().at(10_000).due().at(10_100).pushed(heldAnswer(29_900)).notified();
    expect(nudged.at(10_200).answered(waitingAnswer())).toMatchObject({ effects: ["renew"], state: { at: "held" } });
    expect(nudged.at(10_300).answered(waitingAnswer()).state.at).toBe("lost");
  });

  test("answered none to a call sent before the grant was known: lost, since none leaves no trace", () => {
    const machine = Machine.waiting().at(10_000).due().at(10_100).pushed(heldAnswer(29_900));
    expect(machine.at(10_200).answered(NONE).effects).toEqual(["lose"]);
  });

  test("pushed with another token, or waiting: asked, since a push may be old", () => {
    expect(Machine.held().at(1).pushed(OTHER)).toMatchObject({ effects: ["renew"], state: { at: "held" } });
    expect(Machine.held().at(1).pushed(waitingAnswer()).effects).toEqual(["renew"]);
    expect(Machine.held().at(1).pushed(heldAnswer()).effects).toEqual([]);
  });

  test("notified: renewed; while a call is under way, again when it has settled", () => {
    const machine = Machine.held().at(1).notified();
    expect(machine.effects).toEqual(["renew"]);
    expect(machine.notified().effects).toEqual([]);
    expect(machine.at(2).answered(heldAnswer()).effects).toEqual(["renew"]);
    expect(machine.at(3).answered(heldAnswer()).effects).toEqual([]);
  });

  test("failed: in jeopardy once, tried again soon, restored by the next answer; the lease stands", () => {
    const machine = Machine.held().at(10_000).due().at(10_100).failed();
    expect(machine.effects).toEqual(["jeopardy"]);
    expect(machine.believes).toBe(true);
    expect(machine.at(machine.wakesAt).due().effects).toEqual(["renew"]);
    expect(machine.failed().effects).toEqual([]);
    machine.at(machine.wakesAt).due().notified();
    expect(machine.answered(heldAnswer()).effects).toEqual(["restored", "renew"]);
    expect(machine.answered(heldAnswer()).effects).toEqual([]);
  });

  test("not answered within a sixth of the lease: as if failed; the late failure is nothing new", () => {
    const machine = Machine.held().at(10_000).due();
    expect(machine.wakesAt).toBe(15_000);
    expect(machine.at(15_000).due().effects).toEqual(["jeopardy"]);
    expect(machine.failed().effects).toEqual([]);
    machine.at(15_020).due();
    expect(machine.failed(false, 2).effects).toEqual([]);
    // four attempts fit before the end
    expect(machine.wakesAt).toBe(20_020);
  });

  test("the late answer of a call given up on extends from its own send, and no more", () => {
    const machine = Machine.held().at(10_000).due().at(15_000).due().at(15_020).due().at(16_000);
    expect(machine.answered(heldAnswer(), 2).state).toMatchObject({ deadline: 37_000, talk: { sentAt: 15_020 } });
    expect(machine.answered(NONE, 2).state.at).toBe("held");
    expect(machine.answered(waitingAnswer(), 2).state.at).toBe("held");
  });

  test("the deadline passed: lost, whatever comes then", () => {
    for (const last of ["due", "answered", "notified"] as const) {
      const machine = Machine.held().at(10_000).due().at(27_000);
      if (last === "answered") machine.answered(heldAnswer());
      else machine[last]();
      expect(machine).toMatchObject({ effects: ["lose"], state: { at: "lost", reason: "expired" } });
    }
  });

  test("staying too long: lost although the lease stands", () => {
    const machine = Machine.held().at(5).on({ type: "overstayed", reason: "maxHold" });
    expect(machine).toMatchObject({ effects: ["lose"], state: { at: "lost", reason: "maxHold" } });
  });

  test("left: released, even when the deadline has passed", () => {
    expect(Machine.held().left()).toMatchObject({ effects: ["release"], state: { at: "over", unanswered: false } });
    expect(Machine.held().at(27_000).left().effects).toEqual(["release"]);
  });
});

describe("lost", () => {
  const lost = (): Machine => Machine.held().at(10_000).pushed(NONE);

  test("is released when the body has ended, and not before", () => {
    const machine = lost();
    expect(machine.at(10_001).answered(heldAnswer(), 1).effects).toEqual([]);
    expect(machine.notified().effects).toEqual([]);
    expect(machine.due().effects).toEqual([]);
    expect(machine.left()).toMatchObject({ effects: ["release"], state: { at: "over" } });
  });

  test("or when the store has forgotten it in any case", () => {
    const machine = lost();
    expect(machine.wakesAt).toBe(40_000);
    expect(machine.at(39_999).due().effects).toEqual([]);
    expect(machine.at(40_000).due().effects).toEqual(["release"]);
  });

  test("remembers that a claim call may still be on its way", () => {
    const machine = new Machine().pushed(heldAnswer()).at(1).pushed(NONE);
    expect(machine.state).toMatchObject({ at: "lost", unanswered: true });
    expect(machine.left().state).toMatchObject({ at: "over", unanswered: true });
  });
});

describe("where silence keeps a session", () => {
  const session = { endures: true };

  test("a passed deadline means ask; until the answer nothing is believed", () => {
    const machine = Machine.held(session).at(27_000).due();
    expect(machine).toMatchObject({ effects: ["renew"], state: { at: "held" }, believes: false });
    expect(machine.at(27_100).answered(heldAnswer())).toMatchObject({ effects: [], believes: true });
  });

  test("lost when the store says so, or cannot be reached for a session's length", () => {
    const told = Machine.held(session).at(27_000).due().at(27_100).answered(NONE);
    expect(told.effects).toEqual(["lose"]);
    const silent = Machine.held(session).at(27_000).due();
    while (silent.state.at === "held") silent.at(silent.wakesAt).due();
    expect(silent.now).toBe(57_000);
  });
});

describe("without renewal", () => {
  const quiet = { renews: false };

  test("nothing wakes for it, and the lease ends when it ends", () => {
    const machine = Machine.held(quiet);
    expect(machine.wakesAt).toBe(Number.POSITIVE_INFINITY);
    expect(machine.at(26_999).believes).toBe(true);
    expect(machine.at(27_000).believes).toBe(false);
    expect(machine.due().effects).toEqual(["lose"]);
  });

  test("a call that was asked for is still seen through", () => {
    const machine = Machine.held(quiet).at(1_000).notified();
    expect(machine.wakesAt).toBe(6_000);
    expect(machine.at(6_000).due().wakesAt).toBe(6_020);
  });
});

describe("taken up from another client", () => {
  test("asks at once and believes nothing until the answer, which restores it", () => {
    const machine = Machine.adopted();
    expect(machine).toMatchObject({ effects: ["renew"], believes: false });
    expect(machine.at(100).answered(heldAnswer())).toMatchObject({ effects: ["restored"], believes: true });
    expect(machine.state).toMatchObject({ deadline: 27_000 });
  });

  test("when it goes, a late claim call of the client that made it must not place it again", () => {
    expect(Machine.adopted().answered(heldAnswer()).left().state).toMatchObject({ at: "over", unanswered: true });
  });

  test("is lost when the store does not know it, knows another token, or does not answer for a ttl", () => {
    expect(Machine.adopted().answered({ state: "none", reason: "released" }).state).toMatchObject({
      at: "lost",
      reason: "released",
    });
    expect(Machine.adopted().answered(OTHER).effects).toEqual(["lose"]);
    const silent = Machine.adopted();
    while (silent.state.at === "held") silent.at(silent.wakesAt).due();
    expect(silent.now).toBe(30_000);
  });
});
