import { array, assert, constantFrom, integer, property, record } from "fast-check";
import { expect, test } from "vitest";
import { SlotMap } from "../../../src/util/slot-map.ts";

const arbitraryCommand = record({
  verb: constantFrom("set", "set", "get", "has", "delete", "clear"),
  key: integer({ min: 0, max: 5 }),
  value: integer(),
});

test("a SlotMap answers as a Map does after any insertions and deletions", () => {
  assert(
    property(array(arbitraryCommand, { maxLength: 60 }), (commands) => {
      const slots = new SlotMap<number, number>();
      const map = new Map<number, number>();
      for (const { verb, key, value } of commands) {
        if (verb === "set") {
          slots.set(key, value);
          map.set(key, value);
        } else if (verb === "clear") {
          slots.clear();
          map.clear();
        } else {
          expect(slots[verb](key)).toBe(map[verb](key));
        }
        expect(slots.size).toBe(map.size);
        expect([...slots.keys()]).toEqual([...map.keys()]);
        expect(slots.values()).toEqual([...map.values()]);
        expect([...slots.walk()].sort()).toEqual([...map.values()].sort());
      }
    }),
  );
});

test("walk() visits each lasting entry once, whatever is added or deleted meanwhile", () => {
  const slots = new SlotMap<number, number>();
  for (let index = 0; index < 100; index++) slots.set(index, index);
  const visited: number[] = [];
  for (const value of slots.walk()) {
    visited.push(value);
    if (value % 2 === 0) slots.delete(value < 50 ? value + 1 : value);
    if (value === 20) for (let index = 200; index < 220; index++) slots.set(index, index);
  }
  const isKept = (index: number): boolean => (index < 50 ? index % 2 === 0 : index % 2 === 1);
  for (let index = 0; index < 100; index++)
    if (isKept(index)) expect(visited.filter((value) => value === index)).toEqual([index]);
  expect(new Set(visited).size).toBe(visited.length);
});

test("values() is a copy: later sets and deletions do not show in it", () => {
  const slots = new SlotMap<string, number>();
  slots.set("a", 1);
  const values = slots.values();
  slots.delete("a");
  slots.set("b", 2);
  expect(values).toEqual([1]);
});

test("a map emptied of many entries takes values again, each in its own slot", () => {
  const slots = new SlotMap<number, number>();
  for (const round of [1, 2]) {
    for (let key = 0; key < 3_000; key++) slots.set(key, key * round);
    expect(slots.values()).toEqual(Array.from({ length: 3_000 }, (_, key) => key * round));
    for (let key = 0; key < 3_000; key++) slots.delete(key);
    expect(slots.size).toBe(0);
  }
});

test("a map after thousands of insertions and deletions has only the remaining entries, in order", () => {
  const slots = new SlotMap<number, number>();
  const map = new Map<number, number>();
  for (let key = 0; key < 20_000; key++) {
    slots.set(key, -key);
    map.set(key, -key);
    // three of a hundred stay
    const removedKey = key - 50;
    if (removedKey >= 0 && removedKey % 100 > 2) expect(slots.delete(removedKey)).toBe(map.delete(removedKey));
  }
  expect([...slots.keys()]).toEqual([...map.keys()]);
  expect(slots.values()).toEqual([...map.values()]);
  expect(slots.get(19_000)).toBe(-19_000);
  expect(slots.has(18_999)).toBe(false);
});

test("a value is replaced, of the first key and of another", () => {
  const slots = new SlotMap<string, number>();
  for (const value of [1, 2]) for (const key of ["a", "b"]) slots.set(key, value);
  expect(slots.values()).toEqual([2, 2]);
});
