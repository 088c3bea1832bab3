import { expect, test } from "vitest";
import { heldAnswer, MachineFixture, NONE_ANSWER, waitingAnswer } from "./machine-fixture.ts";

test("a short sleep shortens the lease, and the store is asked at once", () => {
  const machine = MachineFixture.answeredHeld().at(1_000).suspend(5_000);
  expect(machine).toMatchObject({ effects: ["renew"], isHeld: true, state: { deadline: 22_000 } });
  expect(machine.at(1_100).answered(heldAnswer()).state).toMatchObject({ deadline: 28_000 });
});

test("after a sleep past the lease the claim is unconfirmed until the store answers", () => {
  const machine = MachineFixture.answeredHeld().at(1_000).suspend(26_000);
  expect(machine).toMatchObject({ effects: ["renew"], isHeld: false, state: { status: "held" } });
  expect(machine.at(1_100).answered(heldAnswer())).toMatchObject({ isHeld: true, state: { deadline: 28_000 } });
});

test("a false alarm costs one round trip, but without an answer soon the lock is lost", () => {
  const machine = MachineFixture.answeredHeld().at(1_000).suspend(1_000_000);
  expect(machine.at(5_999).due().state.status).toBe("held");
  expect(machine.at(6_000).due().state).toMatchObject({ status: "lost", reason: "expired" });
});

test("near the deadline the claim is unconfirmed no longer than the lease would have lasted", () => {
  const machine = MachineFixture.answeredHeld().at(26_000).suspend(2_000);
  expect(machine.nextWakeAt).toBe(27_000);
});

test("the answer to a call sent before the sleep extends nothing and confirms nothing", () => {
  const machine = MachineFixture.answeredHeld().at(10_000).due().at(10_010).suspend(600_000);
  expect(machine.effects).toEqual([]);
  machine.at(10_020).answered(heldAnswer());
  expect(machine).toMatchObject({ effects: ["renew"], isHeld: false });
  expect(machine.at(10_030).answered(heldAnswer())).toMatchObject({ effects: [], isHeld: true });
  expect(machine.state).toMatchObject({ deadline: 10_020 + 27_000 });
});

test("nor does it after that call was abandoned; an answer of none still counts", () => {
  const machine = MachineFixture.answeredHeld().at(10_000).due().at(10_010).suspend(600_000);
  machine.at(15_000).due();
  expect(machine.state).toMatchObject({ status: "held", callState: { sentAt: null } });
  expect(machine.answered(heldAnswer())).toMatchObject({ effects: [], isHeld: false });
  expect(machine.answered(NONE_ANSWER, 2).effects).toEqual(["lose"]);
});

test("a second sleep does not lengthen the unconfirmed time", () => {
  const machine = MachineFixture.answeredHeld().at(1_000).suspend(26_000).at(2_000).suspend(26_000);
  expect(machine.state).toMatchObject({ unconfirmedUntil: 6_000 });
});

test("a session claim is unconfirmed for up to a session's length after a sleep past it", () => {
  const machine = MachineFixture.answeredHeld({ survivesSilence: true }).at(1_000).suspend(60_000);
  expect(machine).toMatchObject({ isHeld: false, state: { unconfirmedUntil: 31_000 } });
});

test("an attached claim that slept before the answer asks again, and is restored by that answer", () => {
  const machine = MachineFixture.resumed().suspend(60_000);
  expect(machine.at(10).answered(heldAnswer()).effects).toEqual(["renew"]);
  expect(machine.at(20).answered(heldAnswer()).effects).toEqual(["restored"]);
});

test("a waiting entry that slept past its lease is lost; after a shorter sleep it asks again", () => {
  expect(MachineFixture.answeredWaiting().at(1_000).suspend(26_000).effects).toEqual(["release", "expire"]);
  expect(MachineFixture.answeredWaiting().at(1_000).suspend(25_000)).toMatchObject({
    effects: ["renew"],
    state: { deadline: 2_000 },
  });
  expect(MachineFixture.answeredWaiting({ survivesSilence: true }).at(1_000).suspend(26_000)).toMatchObject({
    effects: ["renew"],
  });
});

test("a grant pushed after a sleep ends with the lease that the store counts", () => {
  const machine = MachineFixture.answeredWaiting().at(1_000).suspend(20_000).at(1_100).pushed(heldAnswer(8_900));
  expect(machine.effects).toEqual(["grant"]);
  expect(machine.state).toMatchObject({ status: "held", deadline: 7_000 });
});

test("answers to a claim sent before the sleep place it, but extend nothing", () => {
  const waiting = new MachineFixture().at(1_000).suspend(5_000).at(1_100).answered(waitingAnswer());
  expect(waiting).toMatchObject({ effects: ["renew", "wait"], state: { status: "waiting", deadline: 22_000 } });
  const held = new MachineFixture().at(1_000).suspend(5_000).at(1_100).answered(heldAnswer());
  expect(held).toMatchObject({ effects: ["grant", "renew"], state: { status: "held", deadline: 22_000 } });
});
