// What a user's function returns may be a thenable that executes each time its then() is called, as the query builders of Knex
// and Drizzle: wherever such a result is taken, it executes once, inside the async context of the lock.

import { afterEach, expect, test } from "vitest";
import { createLocks, intercept } from "../../../src/client/locks.ts";
import { wrapJob } from "../../../src/cron/index.ts";
import { memory } from "../../../src/drivers/memory.ts";
import { createFenceGuard } from "../../../src/fencing/index.ts";
import { optimistic } from "../../../src/optimistic/index.ts";
import { webLocks } from "../../../src/web-locks/index.ts";
import { currentLock } from "../../../src/wrapping/current-lock.ts";
import { locked } from "../../../src/wrapping/locked.ts";

const locks = createLocks(memory());
const executions: unknown[] = [];

afterEach(() => {
  executions.length = 0;
});

/** Executes each time then() is called, and notes what it sees there. */
function lazy<T>(result: T, observe: () => unknown = () => null): PromiseLike<T> {
  return {
    // biome-ignore lint/suspicious/noThenProperty: as query builders have it
    then(resolve, reject) {
      executions.push(observe());
      return Promise.resolve(result).then(resolve, reject);
    },
  };
}

/** Fails as a query would, and throws if its then() is called outside of the lock. */
const failing: PromiseLike<never> = {
  // biome-ignore lint/suspicious/noThenProperty: as query builders have it
  then(_resolve, reject) {
    executions.push(null);
    return Promise.reject(new Error("no such table")).then(undefined, reject);
  },
};

const holdsKey = (): unknown => locks.holds("k");
const currentKeys = (): unknown => String(currentLock().keys);

class Orders {
  insert(): PromiseLike<string> {
    return lazy("inserted", currentKeys);
  }
}
// as a decorator with experimentalDecorators
const descriptor = (
  locked(locks, { key: "k" }) as unknown as (...args: readonly unknown[]) => { value: () => Promise<string> }
)(Orders.prototype, "insert", { value: Orders.prototype.insert });

interface Row {
  readonly version: number;
}

/** The name of a place that takes a result, what runs there, and what then() sees. */
const PLACES: readonly (readonly [name: string, run: () => unknown, seen: unknown])[] = [
  ["using()", () => locks.using("k", () => lazy("inserted", holdsKey)), true],
  ["using() of several keys", () => locks.all("j", "k").using(() => lazy("inserted", holdsKey)), true],
  ["using() inside an interceptor", runIntercepted, true],
  ["lock.run()", () => runInLock(() => lazy("inserted", holdsKey)), true],
  ["wrap()", () => locks.wrap("k", () => lazy("inserted", currentKeys))(), "k"],
  ["wrap(), the lock of the flow", () => locks.wrap("k", () => lazy("inserted", holdsKey))(), true],
  ["wrap(), a call that needs no lock, inside another one", runUnlockedInside, "k"],
  ["wrap(), onBusy inside another one", runBusyInside, "j"],
  ["@locked()", () => descriptor.value(), "k"],
  ["wrapJob()", () => wrapJob(locks, "job-1", () => lazy("inserted"))(new Date()), null],
  ["wrapJob() without overlap", runJob, true],
  ["run() of a fence guard", () => createFenceGuard().run("k", 1n, () => lazy("inserted")), null],
  ["request() of Web Locks", () => webLocks(locks).request("k", () => lazy("inserted")), null],
  ["request() of Web Locks, if available", runIfAvailable, null],
  ["optimistic()", runOptimistic, null],
];

test.each(PLACES)("%s: a lazy thenable executes once, inside", async (_name, run, seen) => {
  await expect(run()).resolves.toEqual("inserted");
  expect(executions).toEqual([seen]);
});

async function runInLock<T>(fn: () => PromiseLike<T>): Promise<T> {
  await using lock = await locks.acquire("k");
  return await lock.run(fn);
}

async function runIntercepted(): Promise<unknown> {
  using _ = intercept(locks, (_lock, _event, run) => run());
  return await locks.using("k", () => lazy("inserted", holdsKey));
}

function runUnlockedInside(): Promise<string> {
  const inner = locks.wrap("j", { condition: () => false }, () => lazy("inserted", currentKeys));
  return locks.wrap("k", () => inner())();
}

async function runBusyInside(): Promise<string> {
  await using _ = await locks.acquire("k");
  const options = { wait: 0, onBusy: () => lazy("inserted", currentKeys) };
  const inner = locks.wrap("k", options, async () => "not called");
  return await locks.wrap("j", () => inner())();
}

function runJob(): Promise<string | undefined> {
  const observe = (): boolean => locks.holds("job:job-2");
  return wrapJob(locks, "job-2", () => lazy("inserted", observe), { overlap: false })(new Date());
}

async function runIfAvailable(): Promise<string> {
  await using _ = await locks.acquire("k");
  return await webLocks(locks).request("k", { ifAvailable: true }, () => lazy("inserted"));
}

async function runOptimistic(): Promise<string> {
  const store = {
    read: () => Promise.resolve<Row>({ version: 1 }),
    write: () => lazy(true) as Promise<boolean>,
  };
  return (await optimistic(store, () => "inserted")).status === "written" ? "inserted" : "";
}

test("a thenable that fails executes once, and its error is that of the call", async () => {
  for (const run of [() => locks.using("k", () => failing), () => runInLock(() => failing)]) {
    executions.length = 0;
    await expect(run()).rejects.toThrow("no such table");
    expect(executions).toHaveLength(1);
  }
});

test("lock.run() returns a value at once; the lock cannot be detached until a thenable has settled", async () => {
  const lock = await locks.acquire("k");
  expect(lock.run(() => 5)).toBe(5);
  let settle: (value: string) => void = () => undefined;
  const outcome = lock.run(() => lazy(new Promise<string>((resolve) => (settle = resolve))));
  await expect(lock.detach()).rejects.toMatchObject({ code: "LOCK_UNSUPPORTED" });
  settle("done");
  expect(await outcome).toBe("done");
  await expect(lock.detach()).resolves.toEqual(expect.any(String));
});
