/** What the compiler promises to whoever uses the library, and what it refuses them. Compiled, not run. */

import { describe, expectTypeOf, test } from "vitest";
import { memory } from "../../src/drivers/memory.ts";
import type {
  AcquireOptions,
  Duration,
  Lock,
  Lockable,
  LockError,
  LockEvents,
  LockLostError,
  Locks,
  LockTimeoutError,
  TryOptions,
} from "../../src/index.ts";
import { connect, createLocks } from "../../src/index.ts";

declare const locks: Locks;
declare const lock: Lock;

describe("busy is a value, never an error (decision 0005)", () => {
  test("tryAcquire gives a lock or null, and null has to be looked at", () => {
    expectTypeOf(locks.tryAcquire("k")).resolves.toEqualTypeOf<Lock | null>();
    // @ts-expect-error it may be null
    void locks.tryAcquire("k").then((nullableLock) => nullableLock.token);
  });

  test("acquire gives a lock", () => {
    expectTypeOf(locks.acquire("k")).resolves.toEqualTypeOf<Lock>();
    expectTypeOf(connect("memory:")).resolves.toEqualTypeOf<Locks>();
    expectTypeOf(createLocks(memory())).toEqualTypeOf<Locks>();
  });

  test("tryAcquire does not wait", () => {
    expectTypeOf<TryOptions>().not.toHaveProperty("wait");
    // @ts-expect-error it cannot be told to wait
    void locks.tryAcquire("k", { wait: "5s" });
  });
});

describe("options that may be undefined", () => {
  test("are as if they were not given, also under exactOptionalPropertyTypes", () => {
    const wait = undefined as Duration | undefined;
    const label = undefined as string | undefined;
    void locks.acquire("k", { wait, ttl: wait, label, signal: undefined });
    void locks.tryAcquire("k", { ttl: wait, label });
    void locks.revoke("k", 1n, { now: undefined, reason: label });
    void connect(undefined, { wait, connectTimeout: wait, label, prefix: label, maxHold: wait });
    createLocks(memory(), { wait, order: undefined, clock: undefined });
  });
});

describe("using() gives what its body gives", () => {
  test("of a value and of a promise, with options and without", () => {
    expectTypeOf(locks.using("k", () => 1)).resolves.toEqualTypeOf<number>();
    expectTypeOf(locks.using("k", async () => "a")).resolves.toEqualTypeOf<string>();
    expectTypeOf(locks.using("k", { wait: "1s" }, (held) => held.token)).resolves.toEqualTypeOf<bigint>();
    expectTypeOf(locks.mutex("k").using(() => true)).resolves.toEqualTypeOf<boolean>();
  });

  test("its body is given the lock", () => {
    void locks.using("k", (held) => expectTypeOf(held).toEqualTypeOf<Lock>());
  });
});

describe("a lock", () => {
  test("has a token that keeps its 63 bits", () => {
    expectTypeOf(lock.token).toEqualTypeOf<bigint>();
    expectTypeOf(lock.tokenOf("k")).toEqualTypeOf<bigint>();
    // @ts-expect-error a number would lose digits
    const token: number = lock.token;
    void token;
  });

  test("has a signal, ends with `await using`, and cannot be changed", () => {
    expectTypeOf(lock.signal).toEqualTypeOf<AbortSignal>();
    expectTypeOf(lock).toExtend<AsyncDisposable>();
    // @ts-expect-error nobody makes himself a token
    lock.token = 5n;
  });

  test("says whether its release found it still there", () => {
    expectTypeOf(lock.release()).resolves.toEqualTypeOf<boolean>();
  });
});

describe("options", () => {
  test("a duration is a number of milliseconds or a number with a unit", () => {
    const durations: Duration[] = [5, "5s", "1.5m", "200ms", "2h", "1d", "1m30s", "1d2h3m4s5ms"];
    void durations;
    // @ts-expect-error a unit is needed
    const noUnit: Duration = "5";
    // @ts-expect-error nobody knows this unit
    const fortnight: Duration = "2fortnights";
    // @ts-expect-error the largest unit comes first
    const wrongOrder: Duration = "30s1m";
    // @ts-expect-error nothing is no duration
    const emptyDuration: Duration = "";
    void [noUnit, fortnight, wrongOrder, emptyDuration];
  });

  test("a misspelt one is an error", () => {
    // @ts-expect-error ttl
    const options: AcquireOptions = { tll: "5s" };
    void options;
  });

  test("a lease is a duration or a session's", () => {
    const options: AcquireOptions[] = [{ ttl: "session" }, { ttl: 5_000 }];
    void options;
    // @ts-expect-error no lease is for ever
    const invalidOptions: AcquireOptions = { ttl: "forever" };
    void invalidOptions;
  });
});

describe("what may be locked", () => {
  test("mutex, both sides of a read-write lock, a semaphore and several at once are used alike", () => {
    expectTypeOf(locks.mutex("k")).toEqualTypeOf<Lockable>();
    expectTypeOf(locks.rw("k").read).toEqualTypeOf<Lockable>();
    expectTypeOf(locks.rw("k").write).toEqualTypeOf<Lockable>();
    expectTypeOf(locks.all("a", locks.rw("b").read, locks.semaphore("c", 3))).toEqualTypeOf<Lockable>();
  });

  test("only a semaphore has permits, and it needs its limit", () => {
    void locks.semaphore("k", 3).acquire({ permits: 2, wait: "1s" });
    // @ts-expect-error a mutex is whole
    void locks.mutex("k").acquire({ permits: 2 });
    // @ts-expect-error how many?
    locks.semaphore("k");
  });
});

describe("events and errors", () => {
  test("each event has its own details", () => {
    expectTypeOf<LockEvents>().toHaveProperty("lost");
    locks.on("lost", (event) => expectTypeOf(event).toHaveProperty("reason"));
    // @ts-expect-error there is no such event
    locks.on("stolen", () => undefined);
  });

  test("every error of the package is a LockError", () => {
    expectTypeOf<LockLostError>().toExtend<LockError>();
    expectTypeOf<LockTimeoutError>().toExtend<LockError>();
    expectTypeOf<LockError>().toExtend<Error>();
  });
});

describe("a function under a lock may return a query builder, whose result is that of the call", () => {
  interface Query extends PromiseLike<readonly string[]> {
    where(column: string): Query;
  }
  const query = (): Query => ({}) as Query;

  test("using(), run() and wrap() give a promise of the result, and run() a value as it is", () => {
    expectTypeOf(locks.using("k", query)).toEqualTypeOf<Promise<readonly string[]>>();
    expectTypeOf(lock.run(query)).toEqualTypeOf<Promise<readonly string[]>>();
    expectTypeOf(locks.wrap("k", query)).returns.toEqualTypeOf<Promise<readonly string[]>>();
    expectTypeOf(lock.run(() => 5)).toEqualTypeOf<number>();
    expectTypeOf(lock.run(async () => 5)).toEqualTypeOf<Promise<number>>();
    // @ts-expect-error a query that has executed cannot be changed any more
    void lock.run(query).where("id");
  });
});
