// Names of nodes: their owners, their order, and refused names. Needs no server.

import { describe, expect, test } from "vitest";
import type { Family } from "../../../../src/drivers/zookeeper/node-names.ts";
import { explainForeignNode, formatNodePrefix, parseQueue } from "../../../../src/drivers/zookeeper/node-names.ts";
import { countAdmitted } from "../../../../src/lock-table/admission.ts";
import { ALL_PERMITS } from "../../../../src/spi/driver.ts";

const GUID = "9f0c2a55-8f86-4a0c-9d8d-5f1f3c1c0a11";
const ID = "abcdefghijklmnopqrstuvwxyz";

/** As the server writes the number behind a name: %010d of 32 bits. */
function numberedName(name: string, number: number): string {
  const signed = number | 0;
  return name + (signed < 0 ? `-${String(-signed).padStart(9, "0")}` : String(signed).padStart(10, "0"));
}

function sortNames(names: readonly string[], family: Family = "mutex"): string[] {
  return parseQueue(names, family).queue.map(({ name }) => name);
}

test.each([
  ["an ordinary line", [3, 1, 2], [1, 2, 3]],
  ["across the end of 31 bits", [2 ** 31, 2 ** 31 - 1, 2 ** 31 + 1], [2 ** 31 - 1, 2 ** 31, 2 ** 31 + 1]],
  ["below zero", [-5, -7, -6], [-7, -6, -5]],
  ["from below zero to above", [1, -1, 0], [-1, 0, 1]],
  ["at the widest names", [-(2 ** 31), 2 ** 31 - 2, 2 ** 31 - 1], [2 ** 31 - 2, 2 ** 31 - 1, -(2 ** 31)]],
])("numbers keep their order: %s", (_, names, expected) => {
  const name = (number: number): string => numberedName(`_c_${GUID}-lock-`, number);
  expect(sortNames(names.map(name))).toEqual(expected.map(name));
});

describe("the queue of Curator's read-write lock", () => {
  const write = (number: number): string => numberedName(`_c_${GUID}-__WRIT__`, number);
  const nameNode = (number: number): string => numberedName(`_c_${GUID}-__READ__`, number);

  test("readers at the front are admitted together, a writer behind them waits, and so do readers behind it", () => {
    const { queue, foreignNode } = parseQueue([nameNode(4), write(3), nameNode(1), nameNode(2)], "readWrite");
    expect(foreignNode).toBeNull();
    expect(queue.map(({ name }) => name)).toEqual([nameNode(1), nameNode(2), write(3), nameNode(4)]);
    expect(countAdmitted(queue)).toBe(2);
  });

  test("a writer that also reads has both nodes under one number, and precedes its own read node", () => {
    const { queue } = parseQueue([nameNode(5), nameNode(6), write(5)], "readWrite");
    expect(queue.map(({ name }) => name)).toEqual([write(5), nameNode(5), nameNode(6)]);
    expect(countAdmitted(queue)).toBe(1);
  });

  test("unknown permits count where they do not affect the order", () => {
    const semaphore = formatNodePrefix(ID, { key: "k", permits: 2, limit: 5 }, "readWrite");
    expect(semaphore).toBe(`_c_${ID}-p2.5-__READ__`);
    const { queue } = parseQueue([numberedName(semaphore, 1), nameNode(2), write(3)], "readWrite");
    expect(queue.map(({ permits, limit }) => [permits, limit])).toEqual([
      [2, 5],
      [1, ALL_PERMITS],
      [ALL_PERMITS, ALL_PERMITS],
    ]);
    expect(countAdmitted(queue)).toBe(2);
  });
});

test.each<[Family, number, number, string]>([
  ["mutex", ALL_PERMITS, ALL_PERMITS, "lock-"],
  ["mutex", 1, ALL_PERMITS, `p1.${ALL_PERMITS}-lock-`],
  ["mutex", 2, 5, "p2.5-lock-"],
  ["readWrite", ALL_PERMITS, ALL_PERMITS, "__WRIT__"],
  ["readWrite", 1, ALL_PERMITS, "__READ__"],
  ["readWrite", 1, 1, "p1.1-__READ__"],
])("a claim of %s for %i of %i reads back unchanged", (family, permits, limit, end) => {
  const name = formatNodePrefix(ID, { key: "k", permits, limit }, family);
  expect(name).toBe(`_c_${ID}-${end}`);
  expect(parseQueue([numberedName(name, 7)], family).queue).toEqual([
    { name: numberedName(name, 7), id: ID, sequence: 7, permits, limit },
  ]);
});

test.each<[Family, string, string]>([
  ["mutex", `_c_${GUID}-__WRIT__0000000001`, 'family: "readWrite"'],
  ["mutex", `_c_${ID}-p2.5-__READ__0000000001`, 'family: "readWrite"'],
  ["readWrite", `_c_${GUID}-lock-0000000001`, 'family: "mutex"'],
  ["readWrite", `_c_${ID}-p1.5-lock-0000000001`, 'family: "mutex"'],
  ["mutex", `_c_${GUID}-lease-0000000001`, "not a mutex node"],
  ["mutex", "_c_-lock-0000000001", "not a mutex node"],
  ["mutex", `_c_${GUID}-lock-12`, "not a mutex node"],
  ["mutex", `_c_${GUID}-p1.2.3-lock-0000000001`, "not a mutex node"],
  ["readWrite", "f00__lock__0000000001", "not a read-write lock node"],
  ["mutex", "leases", "not a mutex node"],
])("to a %s the child %s is foreign, and is named without its id", (family, child, reason) => {
  expect(
    parseQueue(
      [numberedName(formatNodePrefix(ID, { key: "k", permits: ALL_PERMITS, limit: ALL_PERMITS }, family), 1), child],
      family,
    ),
  ).toMatchObject({ foreignNode: child, queue: [{ sequence: 1 }] });
  const message = explainForeignNode(child, "/locks/k", family);
  expect(message).toContain("/locks/k");
  expect(message).toContain(reason);
  expect(message).not.toContain(GUID);
  expect(message).not.toContain(ID);
  expect(message).toContain(child.replace(GUID, "...").replace(ID, "..."));
});
