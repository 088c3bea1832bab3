import { beforeEach, expect, test } from "vitest";
import type { OwnedRow } from "../../../../src/drivers/sql/dialect.ts";
import { LeftoverClaims } from "../../../../src/drivers/sql/leftover-claims.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

const toRow = (id: string): OwnedRow => ({ id, key: id, bucket: 1, ttlMs: 30_000 });

let clock: FakeClock;
let rows: readonly string[];
let known: readonly string[];
let reads: number;
let isDown: boolean;
let onRead: () => void;
let released: string[];
let leftoverClaims: LeftoverClaims;
beforeEach(() => {
  clock = new FakeClock();
  [rows, known, reads, isDown, released, onRead] = [["lost", "held"], ["held"], 0, false, [], () => undefined];
  leftoverClaims = new LeftoverClaims({
    clock,
    read: async () => {
      reads++;
      onRead();
      if (isDown) throw new Error("down");
      return rows.map(toRow);
    },
    isReleased: (id) => !known.includes(id),
    release: async (lost) => released.push(...lost.map(({ id }) => id)),
  });
});

/** The database has answered a call, and what follows has settled. */
async function answered(): Promise<void> {
  leftoverClaims.onAnswered();
  await clock.advance(0);
}

test("claims that were released are released again after a call has failed, and not without a failure", async () => {
  await answered();
  expect(reads).toBe(0);
  leftoverClaims.onFailure();
  expect(reads).toBe(0);
  await answered();
  expect([reads, released]).toEqual([1, ["lost"]]);
  await answered();
  expect(reads).toBe(1);
});

test("calls that fail again and again cause one reading in five seconds; one that fails is repeated", async () => {
  rows = [];
  isDown = true;
  leftoverClaims.onFailure();
  await answered();
  await answered();
  expect(reads).toBe(2);
  isDown = false;
  await answered();
  expect(reads).toBe(3);
  leftoverClaims.onFailure();
  await clock.advance(4_999);
  await answered();
  expect(reads).toBe(3);
  await clock.advance(1);
  await answered();
  expect(reads).toBe(4);
});

test("a break of the connection for pushes needs no call, and one during a reading causes another", async () => {
  isDown = true;
  onRead = () => {
    if (reads > 1) return;
    leftoverClaims.onBreak();
    isDown = false;
    throw new Error("down");
  };
  leftoverClaims.onBreak();
  await clock.advance(0);
  expect([reads, released]).toEqual([2, ["lost"]]);
});
