import { expect, test } from "vitest";
import { heldAnswer, Machine, NONE, waitingAnswer } from "./machine.ts";

test("a short sleep: the lease is shorter by it, and the store is asked at once", () => {
  const machine = Machine.held().at(1_000).slept(5_000);
  expect(machine).toMatchObject({ effects: ["renew"], believes: true, state: { deadline: 22_000 } });
  expect(machine.at(1_100).answered(heldAnswer()).state).toMatchObject({ deadline: 28_000 });
});

test("a sleep past the lease: nothing is believed until the store has spoken", () => {
  const machine = Machine.held().at(1_000).slept(26_000);
  expect(machine).toMatchObject({ effects: ["renew"], believes: false, state: { at: "held" } });
  expect(machine.at(1_100).answered(heldAnswer())).toMatchObject({ believes: true, state: { deadline: 28_000 } });
});

test("a false alarm costs one round trip, but a store that does not answer soon has let it go", () => {
  const machine = Machine.held().at(1_000).slept(1_000_000);
  expect(machine.at(5_999).due().state.at).toBe("held");
  expect(machine.at(6_000).due().state).toMatchObject({ at: "lost", reason: "expired" });
});

test("near the deadline the doubt lasts no longer than the lease would have", () => {
  const machine = Machine.held().at(26_000).slept(2_000);
  expect(machine.wakesAt).toBe(27_000);
});

test("the answer to a call sent before the sleep extends nothing and takes away no doubt", () => {
  const machine = Machine.held().at(10_000).due().at(10_010).slept(600_000);
  expect(machine.effects).toEqual([]);
  machine.at(10_020).answered(heldAnswer());
  expect(machine).toMatchObject({ effects: ["renew"], believes: false });
  expect(machine.at(10_030).answered(heldAnswer())).toMatchObject({ effects: [], believes: true });
  expect(machine.state).toMatchObject({ deadline: 10_020 + 27_000 });
});

test("nor does it after that call was given up on; none is believed all the same", () => {
  const machine = Machine.held().at(10_000).due().at(10_010).slept(600_000);
  machine.at(15_000).due();
  expect(machine.state).toMatchObject({ at: "held", talk: { sentAt: null } });
  expect(machine.answered(heldAnswer())).toMatchObject({ effects: [], believes: false });
  expect(machine.answered(NONE, 2).effects).toEqual(["lose"]);
});

test("a second sleep does not lengthen the doubt", () => {
  const machine = Machine.held().at(1_000).slept(26_000).at(2_000).slept(26_000);
  expect(machine.state).toMatchObject({ doubtUntil: 6_000 });
});

test("where silence keeps a session, a sleep past it is a doubt for a session's length", () => {
  const machine = Machine.held({ endures: true }).at(1_000).slept(60_000);
  expect(machine).toMatchObject({ believes: false, state: { doubtUntil: 31_000 } });
});

test("a taken up claim that slept before the answer is asked about again, and restored by that answer", () => {
  const machine = Machine.adopted().slept(60_000);
  expect(machine.at(10).answered(heldAnswer()).effects).toEqual(["renew"]);
  expect(machine.at(20).answered(heldAnswer()).effects).toEqual(["restored"]);
});

test("a place that slept past its lease is lost; after less it is asked about", () => {
  expect(Machine.waiting().at(1_000).slept(26_000).effects).toEqual(["release", "expire"]);
  expect(Machine.waiting().at(1_000).slept(25_000)).toMatchObject({ effects: ["renew"], state: { deadline: 2_000 } });
  expect(Machine.waiting({ endures: true }).at(1_000).slept(26_000)).toMatchObject({ effects: ["renew"] });
});

test("a grant pushed after a sleep ends with the lease that the store counts", () => {
  const machine = Machine.waiting().at(1_000).slept(20_000).at(1_100).pushed(heldAnswer(8_900));
  expect(machine.effects).toEqual(["grant"]);
  expect(machine.state).toMatchObject({ at: "held", deadline: 7_000 });
});

test("answers to a claim sent before the sleep place it, but extend nothing", () => {
  const waiting = new Machine().at(1_000).slept(5_000).at(1_100).answered(waitingAnswer());
  expect(waiting).toMatchObject({ effects: ["renew"], state: { at: "waiting", deadline: 22_000 } });
  const held = new Machine().at(1_000).slept(5_000).at(1_100).answered(heldAnswer());
  expect(held).toMatchObject({ effects: ["grant", "renew"], state: { at: "held", deadline: 22_000 } });
});
