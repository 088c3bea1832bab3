import { expect, test } from "vitest";
import { Tombstones } from "../../../src/lock-table/tombstones.ts";

test("a tombstone is kept until its time is over, and then leaves nothing", () => {
  const tombstones = new Tombstones();
  expect(tombstones.noneAnswer("a")).toEqual({ state: "none" });
  tombstones.add("a", "released", 10);
  tombstones.addIfRoom("b", "expired", 20);
  expect(Array.from(tombstones, ({ id, dueAt }) => [id, dueAt])).toEqual([
    ["a", 10],
    ["b", 20],
  ]);
  tombstones.removeExpired(9);
  expect(tombstones.noneAnswer("a")).toEqual({ state: "none", reason: "released" });
  tombstones.removeExpired(10);
  expect(tombstones.reasonOf("a")).toBeUndefined();
  expect(tombstones.reasonOf("b")).toBe("expired");
  tombstones.removeExpired(20);
  expect(tombstones.size).toBe(0);
});

test("a tombstone set twice has the later reason and the later end", () => {
  const tombstones = new Tombstones();
  tombstones.add("a", "released", 20);
  tombstones.addIfRoom("a", "revoked", 10);
  tombstones.removeExpired(19);
  expect(tombstones.reasonOf("a")).toBe("revoked");
  tombstones.addIfRoom("a", "expired", 30);
  tombstones.removeExpired(29);
  expect(tombstones.reasonOf("a")).toBe("expired");
});

test("end reasons are dropped when there are too many, tombstones never", () => {
  const tombstones = new Tombstones();
  for (let index = 0; index < 10_000; index++) tombstones.addIfRoom(`n${index}`, "expired", 10);
  tombstones.addIfRoom("one too many", "expired", 10);
  expect(tombstones.reasonOf("one too many")).toBeUndefined();
  tombstones.add("tombstone", "released", 10);
  expect(tombstones.reasonOf("tombstone")).toBe("released");
});

test("a full store of end reasons drops the oldest for the newest", () => {
  const tombstones = new Tombstones(2);
  tombstones.add("a", "released", 30);
  tombstones.add("b", "released", 20);
  tombstones.add("a", "expired", 40);
  expect(tombstones.size).toBe(2);
  tombstones.add("c", "released", 10);
  expect(["a", "b", "c"].map((id) => tombstones.reasonOf(id))).toEqual([undefined, "released", "released"]);
  tombstones.removeExpired(20);
  expect(tombstones.size).toBe(0);
});
