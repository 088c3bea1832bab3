import assert from "node:assert/strict";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { test } from "vitest";
import type { LockEvent, LockEvents } from "../../../src/client/events.ts";
import type { Lock } from "../../../src/client/lock.ts";
import { createLocks, intercept } from "../../../src/client/locks.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { LockLostError, LockTimeoutError } from "../../../src/errors.ts";
import { createTestLocks } from "../../../src/testing/index.ts";

test("lock events are published on diagnostics channels, without secrets", async () => {
  const events: [string, unknown][] = [];
  const names = ["acquired", "waiting", "handedOff", "released"].map((name) => `holdfast:${name}`);
  const listener = (message: unknown, name: string | symbol): void => void events.push([String(name), message]);
  for (const name of names) subscribe(name, listener);
  const locks = createLocks(memory(), { label: "tester" });
  const lock = await locks.acquire("k");
  // the second claim requests tokens for both local waiters, so the third is served without the store
  const second = locks.acquire("k");
  const third = locks.acquire("k");
  await lock.release();
  await (await second).release();
  await (await third).release();
  await locks.close();
  for (const name of names) unsubscribe(name, listener);
  assert.deepEqual(
    events.map(([name]) => name.slice("holdfast:".length)),
    ["acquired", "waiting", "waiting", "released", "acquired", "released", "acquired", "handedOff", "released"],
  );
  const text = JSON.stringify(events, (_, value) => (typeof value === "bigint" ? String(value) : value));
  assert.match(text, /"label":"tester"/);
  assert.doesNotMatch(text, /"id"|[a-z2-7]{26}/);
});

test("a listener that throws breaks no lock, and its error is reported", async () => {
  const warnings: Error[] = [];
  const warned = (warning: Error): void => void warnings.push(warning);
  process.on("warning", warned);
  const locks = createLocks(memory());
  const stopListening = locks.on("acquired", () => {
    throw new Error("my fault");
  });
  const lock = await locks.acquire("k");
  assert.equal(await lock.release(), true);
  stopListening[Symbol.dispose]();
  await (await locks.acquire("k")).release();
  await new Promise((resolve) => setImmediate(resolve));
  process.off("warning", warned);
  assert.deepEqual(
    warnings.map(({ message }) => message),
    ["my fault"],
  );
  assert.throws(() => locks.on("nonsense" as keyof LockEvents, () => undefined), TypeError);
  await locks.close();
});

test("a listener that removes and adds itself again receives each event once", async () => {
  const locks = createLocks(memory());
  let count = 0;
  const listener = (): void => {
    if (++count > 10) return;
    listening[Symbol.dispose]();
    listening = locks.on("acquired", listener);
  };
  locks.on("acquired", () => undefined);
  let listening = locks.on("acquired", listener);
  for (let event = 1; event <= 3; event++) {
    await (await locks.acquire("k")).release();
    assert.equal(count, event);
  }
  await locks.close();
});

test("the loss of a lock is reported once, with its reason", async () => {
  const store = memoryStore();
  const driver = memory({ store });
  const locks = createLocks(driver);
  const reasons: string[] = [];
  locks.on("lost", ({ reason }) => reasons.push(reason));
  const lock = await locks.acquire("k", { ttl: 300 });
  const abortEvent = new Promise((resolve) => lock.signal.addEventListener("abort", resolve, { once: true }));
  await driver.revoke?.([{ key: "k", token: lock.token, now: false }]);
  await abortEvent;
  assert.equal(await lock.release(), false);
  assert.deepEqual(reasons, ["revoked"]);
  await locks.close();
});

test("the events of a request and of its lock have one number, and tell how both ended", async () => {
  const locks = createTestLocks();
  const seen: [string, number][] = [];
  const names = ["requested", "acquired", "failed", "released", "detached", "attached", "lost"] as const;
  for (const name of names) locks.on(name, (detail: LockEvent) => seen.push([name, detail.request]));
  const lock = await locks.acquire("k");
  assert.equal(await locks.tryAcquire("k"), null);
  const reference = await lock.detach();
  await locks.attach(reference);
  await locks.releaseAll();
  await locks.acquire("k");
  locks.lose("k");
  await locks.close();
  const first = seen[0]?.[1] ?? 0;
  assert.deepEqual(
    seen.map(([name, request]) => [name, request - first]),
    [
      ["requested", 0],
      ["acquired", 0],
      ["requested", 1],
      ["failed", 1],
      ["detached", 0],
      ["attached", 2],
      ["released", 2],
      ["requested", 3],
      ["acquired", 3],
      ["lost", 3],
    ],
  );
});

test("a listener may withdraw a request as it is made, and request the same key", { timeout: 5_000 }, async () => {
  const locks = createTestLocks();
  const controller = new AbortController();
  let inner: Promise<Lock> = Promise.reject(new Error("not requested"));
  inner.catch(() => undefined);
  const holder = await locks.acquire("k");
  const listening = locks.on("requested", () => {
    listening[Symbol.dispose]();
    controller.abort();
  });
  const seen: string[] = [];
  for (const name of ["waiting", "failed"] as const) locks.on(name, () => seen.push(name));
  await assert.rejects(locks.acquire("k", { signal: controller.signal }), { name: "AbortError" });
  assert.deepEqual(seen, ["failed"]);
  await holder.release();
  const nested = locks.on("requested", () => {
    nested[Symbol.dispose]();
    inner = locks.acquire("k");
  });
  await (await locks.acquire("k")).release();
  assert.equal(await (await inner).release(), true);
  assert.deepEqual(locks.heldKeys(), []);
  await locks.close();
});

test("calls that renew are reported with their time, and with the error of one that failed", async () => {
  const locks = createTestLocks();
  const calls: LockEvents["renewed"][] = [];
  locks.on("renewed", (call) => calls.push(call));
  await locks.acquire("k", { ttl: "3s" });
  await locks.advance("1s");
  assert.deepEqual(calls, [{ store: "memory", claims: 1, tookMs: 0, error: undefined }]);
  locks.storeDown();
  await locks.advance("1s");
  assert.ok((calls.at(-1)?.error as unknown) instanceof Error);
  await locks.close();
});

test("interceptors run around using() in the order of their addition, and see its result and its error", async () => {
  const locks = createTestLocks();
  const seen: unknown[] = [];
  const add = (name: string): Disposable =>
    intercept(locks, async (lock, event, run) => {
      seen.push([name, lock.keys, event.keyTemplate, locks.holds("k")]);
      try {
        const result = await run();
        seen.push([name, result, locks.heldKeys()]);
        return result;
      } catch (error) {
        seen.push([name, (error as Error).message]);
        throw error;
      }
    });
  const [outer, inner] = [add("outer"), add("inner")];
  assert.equal(await locks.using("k", { keyTemplate: "t" }, () => "done"), "done");
  assert.deepEqual(seen.splice(0), [
    ["outer", ["k"], "t", false],
    ["inner", ["k"], "t", false],
    ["inner", "done", []],
    ["outer", "done", []],
  ]);
  outer[Symbol.dispose]();
  await assert.rejects(
    locks.using("k", () => Promise.reject(new Error("my error"))),
    { message: "my error" },
  );
  assert.deepEqual(seen.splice(0), [
    ["inner", ["k"], undefined, false],
    ["inner", "my error"],
  ]);
  inner[Symbol.dispose]();
  await locks.using("k", () => undefined);
  assert.deepEqual(seen, []);
  await locks.close();
});

test("an interceptor that ends without calling run leaves no lock behind", async () => {
  const locks = createTestLocks();
  assert.throws(() => intercept({ ...locks }, () => undefined as never), /^TypeError: locks must be what connect\(\)/);
  const failing = intercept(locks, () => Promise.reject(new Error("my tracer")));
  await assert.rejects(
    locks.using("k", () => "done"),
    { message: "my tracer" },
  );
  assert.deepEqual(locks.heldKeys(), []);
  failing[Symbol.dispose]();
  assert.equal(await locks.using("k", () => "done"), "done");
  await locks.close();
});

test("a listener that is disposed a second time takes no other with it", async () => {
  const locks = createTestLocks();
  const first = locks.on("acquired", () => undefined);
  first[Symbol.dispose]();
  let calls = 0;
  locks.on("acquired", () => calls++);
  first[Symbol.dispose]();
  await locks.acquire("k");
  assert.equal(calls, 1);
  await locks.close();
});

test("a request whose signal is aborted was cancelled, whatever the reason", async () => {
  const locks = createTestLocks();
  await locks.acquire("k");
  const outcomes: unknown[] = [];
  locks.on("failed", ({ outcome }) => outcomes.push(outcome));
  for (const reason of [null, new LockTimeoutError("my own"), new LockLostError("of another lock", "expired")]) {
    const abort = new AbortController();
    const waiting = locks.acquire("k", { signal: abort.signal }).then(
      () => "granted",
      (error: unknown) => error,
    );
    await locks.advance(0);
    abort.abort(reason);
    assert.equal(await waiting, reason);
  }
  assert.deepEqual(outcomes, ["cancelled", "cancelled", "cancelled"]);
  await locks.close();
});

test("a listener that rejects is reported, too", async () => {
  const warned = once(process, "warning");
  const locks = createTestLocks();
  locks.on("acquired", (async () => {
    throw new Error("later");
  }) as () => void);
  await locks.acquire("k");
  assert.equal(((await warned)[0] as Error).message, "later");
  await locks.close();
});
