import { describe, expect, test, vi } from "vitest";
import type { OptimisticOptions, VersionedStore } from "../../../src/optimistic/index.ts";
import { optimistic, stop } from "../../../src/optimistic/index.ts";

interface Stock {
  readonly left: number;
  readonly version: number;
}

/** A versioned value in memory, as a user would write a store. `moves`: how many attempts find the version moved. */
class Shelf implements VersionedStore<Stock, number> {
  stock: Stock | null = { left: 3, version: 1 };
  reads = 0;
  writes = 0;
  moves: number;
  constructor(moves: number = 0) {
    this.moves = moves;
  }
  async read(): Promise<Stock | null> {
    this.reads++;
    return this.stock;
  }
  async write(row: Stock, left: number): Promise<boolean> {
    this.writes++;
    if (this.moves > 0 && this.stock !== null) {
      this.moves--;
      this.stock = { ...this.stock, version: this.stock.version + 1 };
    }
    if (row.version !== this.stock?.version) return false;
    this.stock = { left, version: row.version + 1 };
    return true;
  }
}

const QUICK: OptimisticOptions = { minDelay: 1, maxDelay: 1 };
const takeOne = ({ left }: Stock): number => left - 1;

describe("the result", () => {
  test("a version that did not move: written at once", async () => {
    const shelf = new Shelf();
    expect(await optimistic(shelf, takeOne)).toEqual({
      status: "written",
      before: { left: 3, version: 1 },
      changes: 2,
      retries: 0,
    });
    expect(shelf.stock).toEqual({ left: 2, version: 2 });
  });

  test("a version that moved twice: read and changed again, and the result counts two retries", async () => {
    const shelf = new Shelf(2);
    const attempts: number[] = [];
    const result = await optimistic(
      shelf,
      (row, { attempt }) => {
        attempts.push(attempt);
        return takeOne(row);
      },
      QUICK,
    );
    expect(result).toMatchObject({ status: "written", before: { version: 3 }, retries: 2 });
    expect([shelf.reads, shelf.stock, attempts]).toEqual([3, { left: 2, version: 4 }, [1, 2, 3]]);
  });

  test("stop(value): its value is returned, nothing is written or repeated", async () => {
    const shelf = new Shelf();
    const result = await optimistic(shelf, ({ left }) => (left > 2 ? stop("enough") : left + 1));
    expect(result).toEqual({ status: "stopped", before: { left: 3, version: 1 }, value: "enough", retries: 0 });
    expect([shelf.reads, shelf.writes]).toEqual([1, 0]);
  });

  test("stop() of another copy of the package is understood", async () => {
    const foreign = { [Symbol.for("holdfast.optimistic.stop")]: true, value: 7 } as never;
    expect(await optimistic(new Shelf(), () => foreign)).toMatchObject({ status: "stopped", value: 7 });
  });

  test("stop() without a value, in a change that waits", async () => {
    const shelf = new Shelf();
    expect(await optimistic(shelf, async () => stop())).toMatchObject({ status: "stopped", value: undefined });
    expect(shelf.writes).toBe(0);
  });

  test.each([0, false, "", null, undefined])("%j is something to write, not a stop", async (changes) => {
    const written: unknown[] = [];
    const store = { read: async () => 1, write: async (_: number, next: unknown) => written.push(next) > 0 };
    expect(await optimistic(store, () => changes)).toMatchObject({ status: "written", changes });
    expect(written).toEqual([changes]);
  });
});

describe("the end of the attempts", () => {
  test("the version moves in every attempt: a conflict that says how many were made", async () => {
    const shelf = new Shelf(99);
    const failed = optimistic(shelf, takeOne, { ...QUICK, attempts: 3 });
    await expect(failed).rejects.toMatchObject({
      name: "VersionConflictError",
      code: "LOCK_VERSION_CONFLICT",
      attempts: 3,
      keys: [],
      message: "nothing was written: the version moved in each of 3 attempts: try later, or use a lock",
    });
    expect(shelf.writes).toBe(3);
  });

  test("without the option there are ten attempts", async () => {
    const shelf = new Shelf(99);
    await expect(optimistic(shelf, takeOne, QUICK)).rejects.toMatchObject({ attempts: 10 });
  });

  test("one attempt: no delay, and its own words", async () => {
    await expect(optimistic(new Shelf(1), takeOne, { attempts: 1 })).rejects.toThrow(/moved in the only attempt/);
  });

  test("no attempt begins that the delay would make late", async () => {
    const random = vi.spyOn(Math, "random").mockReturnValue(1);
    const late = optimistic(new Shelf(99), takeOne, { timeout: 50, minDelay: 20, maxDelay: "1h", attempts: 1_000 });
    // 20 ms end in time, another 40 do not
    const early = optimistic(new Shelf(99), takeOne, { timeout: 50, minDelay: "1m", maxDelay: "1m", attempts: 1_000 });
    await expect(early).rejects.toMatchObject({
      code: "LOCK_VERSION_CONFLICT",
      attempts: 1,
      message: /1 of 1000 attempts, and 50 ms are over/,
    });
    await expect(late).rejects.toMatchObject({ attempts: 2 });
    random.mockRestore();
  });

  test("each delay is a random part of a bound that doubles up to maxDelay", async () => {
    const random = vi.spyOn(Math, "random").mockReturnValue(1);
    const startedAt = performance.now();
    await optimistic(new Shelf(4), takeOne, { minDelay: 10, maxDelay: 30 });
    // 10 + 20 + 30 + 30 ms, of each of which a timer may skip one
    expect(performance.now() - startedAt).toBeGreaterThanOrEqual(86);
    random.mockReturnValue(0);
    await expect(optimistic(new Shelf(99), takeOne, { minDelay: "1h", maxDelay: "1h" })).rejects.toMatchObject({
      attempts: 10,
    });
    random.mockRestore();
  });

  test("no such row: a typed error at once", async () => {
    const shelf = new Shelf();
    shelf.stock = null;
    await expect(optimistic(shelf, takeOne)).rejects.toMatchObject({
      name: "RowGoneError",
      code: "LOCK_ROW_GONE",
      attempts: 1,
      message: "nothing was written: the row does not exist",
    });
    expect([shelf.reads, shelf.writes]).toEqual([1, 0]);
  });

  test("the row is deleted between two attempts: the same error, and not a conflict", async () => {
    const shelf = new Shelf();
    const deleting = optimistic(
      shelf,
      (row) => {
        shelf.stock = null;
        return takeOne(row);
      },
      QUICK,
    );
    await expect(deleting).rejects.toMatchObject({
      code: "LOCK_ROW_GONE",
      attempts: 2,
      message: /was deleted meanwhile/,
    });
  });

  test("an exception of change ends it and is passed on as it is", async () => {
    const [shelf, problem] = [new Shelf(), new Error("no such coupon")];
    const failed = optimistic(shelf, () => {
      throw problem;
    });
    await expect(failed).rejects.toBe(problem);
    expect([shelf.reads, shelf.writes]).toEqual([1, 0]);
  });

  test("an exception of change is not asked to the store, which might call it a conflict", async () => {
    const shelf = Object.assign(new Shelf(), { classifyError: () => "moved" as const });
    await expect(optimistic(shelf, () => Promise.reject(new Error("mine")))).rejects.toThrow("mine");
    expect(shelf.reads).toBe(1);
  });
});

describe("exceptions of the store", () => {
  const failing = (during: "read" | "write", meaning: "moved" | "unknown" | "failed" | undefined) => {
    const shelf = new Shelf();
    const failure = new Error("lost");
    let failures = 0;
    const calls = { read: () => shelf.read(), write: (row: Stock, left: number) => shelf.write(row, left) };
    const store: VersionedStore<Stock, number> = {
      ...calls,
      [during]: async (row: Stock, left: number) => {
        if (failures++ === 0) throw failure;
        return during === "read" ? shelf.read() : shelf.write(row, left);
      },
      ...(meaning !== undefined && { classifyError: () => meaning }),
    };
    return { shelf, store, failure, failures: () => failures };
  };

  test.each(["read", "write"] as const)("%s says that the version moved: retried", async (during) => {
    const { store, shelf } = failing(during, "moved");
    expect(await optimistic(store, takeOne, QUICK)).toMatchObject({ status: "written", retries: 1 });
    expect(shelf.stock).toEqual({ left: 2, version: 2 });
  });

  test("the last one becomes the cause of the conflict", async () => {
    const { store, failure } = failing("write", "moved");
    await expect(optimistic(store, takeOne, { attempts: 1 })).rejects.toMatchObject({ cause: failure });
  });

  test("the answer to a write is lost: typed, and never repeated", async () => {
    const { store, failure, failures } = failing("write", "unknown");
    await expect(optimistic(store, takeOne, QUICK)).rejects.toMatchObject({
      name: "OutcomeUnknownError",
      code: "LOCK_OUTCOME_UNKNOWN",
      attempts: 1,
      cause: failure,
      message: /unknown whether the change was written \(lost\)/,
    });
    expect(failures()).toBe(1);
  });

  test("the answer to a read is lost: passed on, since nothing can have been written", async () => {
    const { store, failure } = failing("read", "unknown");
    await expect(optimistic(store, takeOne, QUICK)).rejects.toBe(failure);
  });

  test.each(["failed", undefined] as const)(
    "a write that failed (%s) is passed on and not repeated",
    async (meaning) => {
      const { store, failure, failures } = failing("write", meaning);
      await expect(optimistic(store, takeOne, QUICK)).rejects.toBe(failure);
      expect(failures()).toBe(1);
    },
  );

  test("a store that cannot retry gets one attempt, and the error says what to repeat", async () => {
    const shelf = Object.assign(new Shelf(1), { canRetry: () => false });
    await expect(optimistic(shelf, takeOne)).rejects.toMatchObject({
      code: "LOCK_VERSION_CONFLICT",
      attempts: 1,
      message: /inside a transaction: roll it back and repeat all of it/,
    });
    expect(shelf.writes).toBe(1);
  });

  test("a version that is read again after it has moved is named: the reads come from a snapshot", async () => {
    const store = { read: async () => 7, write: async () => false, readVersion: (row: number) => row };
    await expect(optimistic(store, () => 1, { ...QUICK, attempts: 2 })).rejects.toThrow(
      /\(version 7 was read again after it had moved: from the snapshot of a transaction, or from a replica\?\)/,
    );
  });

  test("a version that really moves is not", async () => {
    const shelf = Object.assign(new Shelf(9), { readVersion: ({ version }: Stock) => version });
    await expect(optimistic(shelf, takeOne, { ...QUICK, attempts: 3 })).rejects.not.toThrow(/again/);
  });
});

describe("a signal", () => {
  test("aborted before: nothing is read", async () => {
    const shelf = new Shelf();
    const reason = new Error("shutting down");
    await expect(optimistic(shelf, takeOne, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    expect(shelf.reads).toBe(0);
  });

  test("aborted during change: nothing is written", async () => {
    const [shelf, controller, reason] = [new Shelf(), new AbortController(), new Error("shutting down")];
    const aborted = optimistic(
      shelf,
      (row) => {
        controller.abort(reason);
        return takeOne(row);
      },
      { signal: controller.signal },
    );
    await expect(aborted).rejects.toBe(reason);
    expect(shelf.writes).toBe(0);
  });

  test("aborted during a delay: the delay ends", async () => {
    const [shelf, controller, reason] = [new Shelf(99), new AbortController(), new Error("shutting down")];
    const random = vi.spyOn(Math, "random").mockReturnValue(1);
    const aborted = optimistic(shelf, takeOne, { minDelay: "1h", maxDelay: "1h", signal: controller.signal });
    const settled = expect(aborted).rejects.toBe(reason);
    while (shelf.writes === 0) await Promise.resolve();
    setImmediate(() => controller.abort(reason));
    await settled;
    random.mockRestore();
    expect(shelf.reads).toBe(1);
  });

  test("aborted during a write that succeeds: the result is returned, since it was written", async () => {
    const [shelf, controller] = [new Shelf(), new AbortController()];
    const store = {
      read: () => shelf.read(),
      write(row: Stock, left: number) {
        controller.abort();
        return shelf.write(row, left);
      },
    };
    expect(await optimistic(store, takeOne, { signal: controller.signal })).toMatchObject({ status: "written" });
  });
});

describe("wrong arguments", () => {
  test.each([
    [{ attempts: 0 }, /^attempts must be a whole number from 1/],
    [{ timeout: 0 }, /^timeout must be a whole number of milliseconds from 1/],
    [{ minDelay: -1 }, /^minDelay must be/],
    [{ maxDelay: "soon" }, /^maxDelay must be/],
    [{ signal: {} }, /^signal must be an AbortSignal/],
    [{ retries: 3 }, /^optimistic\(\) has no option "retries"/],
    [null, /^options of optimistic\(\) must be an object, not null/],
  ])("%j is a TypeError before anything is read", async (options, message) => {
    const shelf = new Shelf();
    const failed = optimistic(shelf, takeOne, options as never);
    await expect(failed).rejects.toThrow(TypeError);
    await expect(failed).rejects.toThrow(message);
    expect(shelf.reads).toBe(0);
  });

  test.each([null, 7, { read() {} }, { write() {} }])("%j is not a store", async (store) => {
    await expect(optimistic(store as never, takeOne as never)).rejects.toThrow(
      /^store must be an object with read\(\)/,
    );
  });

  test("a change that is no function", async () => {
    await expect(optimistic(new Shelf(), { left: 1 } as never)).rejects.toThrow(/^change must be a function/);
  });

  test("a write that answers nothing is not repeated as a conflict", async () => {
    const shelf = Object.assign(new Shelf(), { write: async () => undefined as never });
    await expect(optimistic(shelf, takeOne)).rejects.toThrow(/^write\(\) must return true or false, not undefined/);
    expect(shelf.reads).toBe(1);
  });
});
