import { afterEach, expect, test, vi } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { memory } from "../../../src/drivers/memory.ts";
import { currentLock, withoutCurrentLock } from "../../../src/wrapping/current-lock.ts";

const opened: Locks[] = [];

function openLocks(): Locks {
  const locks = createLocks(memory());
  opened.push(locks);
  return locks;
}

afterEach(async () => {
  await Promise.all(opened.splice(0).map((locks) => locks.close()));
});

test("calls with one key run one after another, those with other keys beside them", async () => {
  const locks = openLocks();
  let running = 0;
  const seen: string[] = [];
  const pay = locks.wrap("order:#{orderId}", async (orderId: string) => {
    seen.push(`${currentLock().keys} ${++running}`);
    await Promise.resolve();
    await new Promise(setImmediate);
    running--;
    return `paid ${orderId}`;
  });
  expect(await Promise.all([pay("1"), pay("1")])).toEqual(["paid 1", "paid 1"]);
  expect(seen).toEqual(["order:1 1", "order:1 1"]);
  await Promise.all([pay("1"), pay("2")]);
  expect(seen.slice(2)).toEqual(["order:1 1", "order:2 2"]);
});

test("this, name, length and own properties are kept; a result that is no promise becomes one", async () => {
  const locks = openLocks();
  function add(this: { base: number }, a: number, b: number): number {
    return this.base + a + b;
  }
  const wrapped = locks.wrap("sum", Object.assign(add, { route: "/sum" }));
  expect([wrapped.name, wrapped.length, (wrapped as unknown as { route: string }).route]).toEqual(["add", 2, "/sum"]);
  expect(await wrapped.call({ base: 1 }, 2, 3)).toBe(6);
});

test("key functions get the arguments, an array of keys is several locks", async () => {
  const locks = openLocks();
  const transfer = locks.wrap(
    [(from: string) => `account:${from}`, "account:#{1}"],
    async (_from: string, _to: string) => currentLock().keys.join(),
  );
  expect(await transfer("b", "a")).toBe("account:a,account:b");
});

test("wait: 0 rejects at once while the lock is held; onBusy replaces that", async () => {
  const locks = openLocks();
  const lock = await locks.acquire("job");
  const run = vi.fn(() => "done");
  await expect(locks.wrap("job", { wait: 0 }, run)()).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
  const busy = locks.wrap("job", { wait: 0, onBusy: (error) => `${error.code} ${error.keys}` }, run);
  expect(await busy()).toBe("LOCK_TIMEOUT job");
  expect(run).not.toHaveBeenCalled();
  await lock.release();
  expect(await busy()).toBe("done");
});

test("onBusy is not for a time-out of another lock, inside the function", async () => {
  const locks = openLocks();
  const lock = await locks.acquire("inner");
  const run = locks.wrap("outer", { onBusy: () => "busy" }, async () => {
    await locks.acquire("inner", { wait: 0 });
    return "done";
  });
  await expect(run()).rejects.toMatchObject({ code: "LOCK_TIMEOUT", keys: ["inner"] });
  await lock.release();
});

test("a call whose condition is false runs without the lock", async () => {
  const locks = openLocks();
  const lock = await locks.acquire("k");
  const run = locks.wrap("k", { wait: 0, condition: (isImportant: boolean) => isImportant }, (_: boolean) => "ran");
  expect(await run(false)).toBe("ran");
  await expect(run(true)).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
  await lock.release();
});

test("signal may depend on the call; maxHold ends the lock of a call that hangs", async () => {
  const locks = openLocks();
  const lock = await locks.acquire("k");
  const run = locks.wrap("k", { signal: (signal: AbortSignal) => signal }, (_: AbortSignal) => undefined);
  await expect(run(AbortSignal.abort(new Error("cancelled")))).rejects.toThrow("cancelled");
  await lock.release();
  const hang = locks.wrap("k", { maxHold: 20 }, async () => {
    const { signal } = currentLock();
    await new Promise((resolve) => {
      signal.addEventListener("abort", resolve);
    });
  });
  await expect(hang()).rejects.toMatchObject({ code: "LOCK_LOST", reason: "maxHold" });
});

test("nested calls for the same key join the lock; the inner lock is the current one", async () => {
  const locks = openLocks();
  const inner = locks.wrap("b", async () => currentLock().keys.join());
  const outer = locks.wrap("a", async () => [
    await inner(),
    await locks.wrap("a", () => "joined")(),
    currentLock().keys.join(),
  ]);
  expect(await outer()).toEqual(["b", "joined", "a"]);
  expect(() => currentLock()).toThrow("currentLock() works only inside");
});

test("bad arguments are refused by wrap() itself, bad keys by the call before anything is sent", async () => {
  const locks = openLocks();
  const wrap = locks.wrap as unknown as (...args: readonly unknown[]) => () => Promise<unknown>;
  const fn = (): void => undefined;
  expect(() => wrap("k")).toThrow("fn must be a function, not undefined");
  expect(() => wrap("k", 3, fn)).toThrow("options of wrap must be an object, not 3");
  expect(() => wrap(3, fn)).toThrow("key must be a string or a function, not 3");
  expect(() => wrap("#{nobody}", fn)).toThrow("#{nobody} names no parameter of fn()");
  expect(() => wrap("k", { tll: "3s" }, fn)).toThrow('wrap has no option "tll"');
  expect(() => wrap("k", { ttl: "3 s" }, fn)).toThrow("ttl must be");
  expect(() => wrap("k", { maxHold: 0 }, fn)).toThrow("maxHold must be");
  expect(() => wrap("k", { onBusy: 1 }, fn)).toThrow("onBusy must be a function, not 1");
  expect(() => wrap("k", { condition: 1 }, fn)).toThrow("condition must be a function, not 1");
  expect(() => wrap("k", { signal: 1 }, fn)).toThrow("signal must be an AbortSignal, or a function that returns one");
  expect(() => wrap([], fn)).toThrow("wrap needs at least one key");
  const late = /^the function must not be a generator: its body would run after the lock was released$/;
  expect(() => wrap("k", function* () {})).toThrow(late);
  expect(() => wrap("k", async function* () {})).toThrow(late);
  await expect(wrap(() => 3, fn)()).rejects.toThrow("key must be a string, not 3");
});

test("all() takes a list, too", async () => {
  const locks = openLocks();
  const lock = await locks.all(["b", "a"]).acquire();
  expect(lock.keys).toEqual(["a", "b"]);
  await lock.release();
  expect(() => locks.all([])).toThrow("all() needs at least one key");
  expect(() => locks.all([["a"]] as never)).toThrow("not a list inside a list");
});

test("options behind the function are refused, and not ignored", async () => {
  const locks = openLocks();
  const work = async (): Promise<string> => "done";
  const behind = "options must come before fn";
  await expect(locks.using("k", work as never, { wait: 0 } as never)).rejects.toThrow(behind);
  await expect(locks.mutex("k").using(work as never, { wait: 0 } as never)).rejects.toThrow(behind);
  expect(() => locks.wrap("k", work as never, { wait: 0 } as never)).toThrow(behind);
  expect(await locks.list()).toEqual([]);
});

test("withoutCurrentLock() leaves the wrapped function's lock, also in what the function returns, and returns its result", async () => {
  const locks = openLocks();
  const seen: unknown[] = [];
  const look = (): void => {
    seen.push(locks.holds("a"));
    expect(() => currentLock()).toThrow("currentLock() works only inside");
  };
  const query = {
    // biome-ignore lint/suspicious/noThenProperty: a query builder executes in then()
    then: (resolve: (row: string) => void) => {
      look();
      resolve("row");
    },
  };
  await locks.wrap("a", async () => {
    expect(withoutCurrentLock(() => look() ?? 1)).toBe(1);
    expect(await withoutCurrentLock(() => query as PromiseLike<string>)).toBe("row");
    expect(() => withoutCurrentLock(() => currentLock())).toThrow(TypeError);
    await withoutCurrentLock(() => locks.wrap("b", async () => seen.push(String(currentLock().keys)))());
    expect(currentLock().keys).toEqual(["a"]);
  })();
  expect(seen).toEqual([false, false, "b"]);
  expect(() => withoutCurrentLock("a" as never)).toThrow("fn must be a function");
});
