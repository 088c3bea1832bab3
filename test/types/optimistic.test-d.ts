/** What the compiler knows of a change and of its result. Compiled, not run. */

import { expectTypeOf, test } from "vitest";
import type { OptimisticResult, VersionedStore } from "../../src/optimistic/index.ts";
import { optimistic, stop, versionedRow } from "../../src/optimistic/index.ts";

interface Bonus {
  readonly id: number;
  readonly left_count: number;
  readonly version: number;
}

declare const pool: object;
declare const store: VersionedStore<string, Uint8Array>;
const bonus = versionedRow<Bonus>(pool, { table: "t_bonus", key: { id: 1 } });

test("the row, the columns to write, and the value of stop() are typed", () => {
  expectTypeOf(bonus).toEqualTypeOf<VersionedStore<Bonus, Partial<Bonus>>>();
  const result = optimistic(bonus, (row) => {
    expectTypeOf(row).toEqualTypeOf<Bonus>();
    return row.left_count === 0 ? stop("sold out") : { left_count: row.left_count - 1 };
  });
  expectTypeOf(result).resolves.toEqualTypeOf<OptimisticResult<Bonus, Partial<Bonus>, "sold out">>();
  void result.then((ended) => {
    if (ended.status === "stopped") expectTypeOf(ended.value).toEqualTypeOf<"sold out">();
    else expectTypeOf(ended.changes).toEqualTypeOf<Partial<Bonus>>();
    // @ts-expect-error only a stopped one has a value
    void ended.value;
  });
});

test("a change may wait, and may never stop", () => {
  const result = optimistic(store, async (row) => Buffer.from(row));
  expectTypeOf(result).resolves.toEqualTypeOf<OptimisticResult<string, Uint8Array, never>>();
});

test("what is not a column is refused", () => {
  // @ts-expect-error no such column
  void optimistic(bonus, () => ({ left: 1 }));
  // @ts-expect-error of another type
  void optimistic(bonus, () => ({ left_count: "1" }));
  // @ts-expect-error not what this store writes
  void optimistic(store, () => 7);
  // @ts-expect-error no such column
  versionedRow<Bonus>(pool, { table: "t_bonus", key: { name: 1 } });
  // @ts-expect-error no such column
  versionedRow<Bonus>(pool, { table: "t_bonus", key: { id: 1 }, version: "revision" });
  // @ts-expect-error the key is required
  versionedRow<Bonus>(pool, { table: "t_bonus" });
});
