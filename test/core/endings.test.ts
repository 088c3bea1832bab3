import { expect, test } from "vitest";
import { Endings } from "../../src/core/endings.ts";

test("an ending is known until its time has come, and then leaves nothing", () => {
  const endings = new Endings();
  expect(endings.none("a")).toEqual({ state: "none" });
  endings.bury("a", "released", 10);
  endings.note("b", "expired", 20);
  endings.forget(9);
  expect(endings.none("a")).toEqual({ state: "none", reason: "released" });
  endings.forget(10);
  expect(endings.reasonOf("a")).toBeUndefined();
  expect(endings.reasonOf("b")).toBe("expired");
  endings.forget(20);
  expect(endings.size).toBe(0);
});

test("an ending that is told twice has the later reason and the later end", () => {
  const endings = new Endings();
  endings.bury("a", "released", 20);
  endings.note("a", "revoked", 10);
  endings.forget(19);
  expect(endings.reasonOf("a")).toBe("revoked");
  endings.note("a", "expired", 30);
  endings.forget(29);
  expect(endings.reasonOf("a")).toBe("expired");
});

test("reasons are dropped when there are too many, tombstones never", () => {
  const endings = new Endings();
  for (let index = 0; index < 10_000; index++) endings.note(`n${index}`, "expired", 10);
  endings.note("one too many", "expired", 10);
  expect(endings.reasonOf("one too many")).toBeUndefined();
  endings.bury("tombstone", "released", 10);
  expect(endings.reasonOf("tombstone")).toBe("released");
});

test("where only so many are remembered the oldest is forgotten for the newest", () => {
  const endings = new Endings(2);
  endings.bury("a", "released", 30);
  endings.bury("b", "released", 20);
  endings.bury("a", "expired", 40);
  expect(endings.size).toBe(2);
  endings.bury("c", "released", 10);
  expect(["a", "b", "c"].map((id) => endings.reasonOf(id))).toEqual([undefined, "released", "released"]);
  endings.forget(20);
  expect(endings.size).toBe(0);
});
