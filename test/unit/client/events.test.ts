import assert from "node:assert/strict";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { test } from "vitest";
import type { LockEvents } from "../../../src/client/events.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";

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
