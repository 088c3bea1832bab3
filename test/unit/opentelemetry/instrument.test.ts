import { expect, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { intercept } from "../../../src/client/locks.ts";
import type { InstrumentOptions } from "../../../src/opentelemetry/index.ts";
import { instrument } from "../../../src/opentelemetry/index.ts";
import type { TestLocks } from "../../../src/testing/index.ts";
import { createTestLocks } from "../../../src/testing/index.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import type { FakeTelemetry, Point } from "./fake-telemetry.ts";
import { createFakeTelemetry } from "./fake-telemetry.ts";

checkLeaksAfterEach();

interface Fixture extends FakeTelemetry {
  readonly locks: TestLocks;
  readonly recording: Disposable;
  /** The points of a metric: value and attributes. */
  pointsOf(name: string): readonly (readonly [number, Point["attributes"]])[];
}

function createFixture(options: InstrumentOptions = {}): Fixture {
  const telemetry = createFakeTelemetry();
  const { tracerProvider, meterProvider } = telemetry;
  const locks = createTestLocks();
  const recording = instrument(locks, { tracerProvider, meterProvider, ...options });
  const pointsOf: Fixture["pointsOf"] = (name) =>
    telemetry.points.filter((point) => point.name === name).map(({ value, attributes }) => [value, attributes]);
  return { ...telemetry, locks, recording, pointsOf };
}

const EXCLUSIVE = { "holdfast.store": "memory", "holdfast.mode": "exclusive" };

test("wait and hold are histograms in seconds, with the outcome of the wait", async () => {
  const { locks, pointsOf } = createFixture();
  const lock = await locks.acquire("a");
  const [timedOut, granted] = [locks.acquire("a", { wait: "1s" }), locks.acquire("a")];
  const timeout = expect(timedOut).rejects.toThrow("waited 1 s");
  expect(await locks.tryAcquire("a")).toBeNull();
  const controller = new AbortController();
  const cancelled = locks.acquire("a", { signal: controller.signal });
  controller.abort();
  await expect(cancelled).rejects.toThrow();
  await locks.advance("2s");
  await timeout;
  await lock.release();
  await (await granted).release();
  expect(pointsOf("holdfast.lock.wait")).toEqual([
    [0, { ...EXCLUSIVE, "holdfast.outcome": "granted" }],
    [0, { ...EXCLUSIVE, "holdfast.outcome": "busy" }],
    [0, { ...EXCLUSIVE, "holdfast.outcome": "cancelled" }],
    [1, { ...EXCLUSIVE, "holdfast.outcome": "timeout" }],
    [2, { ...EXCLUSIVE, "holdfast.outcome": "granted" }],
  ]);
  expect(pointsOf("holdfast.lock.hold")).toEqual([
    [2, EXCLUSIVE],
    [0, EXCLUSIVE],
  ]);
  await locks.close();
});

test("the numbers of waiting requests and of held locks return to 0 however a lock ends", async () => {
  const { locks, sumOf } = createFixture();
  const [waiting, held] = ["holdfast.lock.waiting", "holdfast.lock.held"];
  const released = await locks.acquire("released");
  await locks.acquire("lost");
  await locks.acquire("given up");
  const detached = await locks.acquire("detached");
  const waiter = locks.acquire("released");
  expect([sumOf(waiting), sumOf(held)]).toEqual([1, 4]);
  await released.release();
  await (await waiter).release();
  locks.lose("lost", "revoked");
  const reference = await detached.detach();
  expect([sumOf(waiting), sumOf(held)]).toEqual([0, 1]);
  await locks.attach(reference);
  expect(sumOf(held)).toBe(2);
  await locks.releaseAll();
  expect([sumOf(waiting), sumOf(held)]).toEqual([0, 0]);
  await locks.close();
});

test("lost locks are counted by reason, and calls that renew are timed", async () => {
  const { locks, pointsOf } = createFixture();
  await locks.acquire("a", { ttl: "3s" });
  await locks.advance("1.5s");
  locks.lose("a", "revoked");
  const lost = [[1, { ...EXCLUSIVE, "holdfast.lost.reason": "revoked" }]];
  expect(pointsOf("holdfast.lock.lost")).toEqual(lost);
  expect(pointsOf("holdfast.lock.hold")).toEqual([[1.5, EXCLUSIVE]]);
  const second = await locks.acquire("a", { ttl: "3s" });
  locks.storeDown();
  await locks.advance("1.5s");
  locks.storeUp();
  await second.release();
  const renewals = pointsOf("holdfast.lock.renew").map(([, attributes]) => attributes);
  expect(renewals).toContainEqual({ "holdfast.store": "memory", "holdfast.outcome": "answered" });
  expect(renewals).toContainEqual({ "holdfast.store": "memory", "holdfast.outcome": "error" });
  await locks.close();
});

test("attributes have the template of a key and never the key: from the option, wrap() or the function", async () => {
  const { locks, pointsOf, points, spans } = createFixture({ keyTemplate: (key) => key.replace(/\d+/g, "{id}") });
  await (await locks.acquire("a:1")).release();
  await (await locks.acquire("a:2", { keyTemplate: "given" })).release();
  const wrapped = locks.wrap(["b:#{id}", "c:#{id}"], async (id: number) => id);
  expect(await wrapped(3)).toBe(3);
  await (await locks.rw("d:4").read.acquire()).release();
  await (await locks.semaphore("e:5", 2).acquire()).release();
  expect(pointsOf("holdfast.lock.hold").map(([, attributes]) => Object.values(attributes))).toEqual([
    ["memory", "exclusive", "a:{id}"],
    ["memory", "exclusive", "given"],
    ["memory", "exclusive", "b:#{id}, c:#{id}"],
    ["memory", "shared", "d:{id}"],
    ["memory", "semaphore", "e:{id}"],
  ]);
  expect(JSON.stringify([points, spans])).not.toMatch(/[a-e]:\d/);
  await locks.close();
});

test("a function for templates that throws breaks no lock", async () => {
  const warnings: Error[] = [];
  const onWarning = (warning: Error): void => void warnings.push(warning);
  process.on("warning", onWarning);
  const { locks, spans } = createFixture({
    keyTemplate: () => {
      throw new Error("my template");
    },
  });
  expect(await locks.using("k", async () => "done")).toBe("done");
  expect(spans.map(({ name, isEnded }) => [name, isEnded])).toEqual([
    ["acquire lock", true],
    ["hold lock", true],
  ]);
  await locks.close();
  await new Promise((resolve) => setImmediate(resolve));
  process.off("warning", onWarning);
  expect(new Set(warnings.map(({ message }) => message))).toEqual(new Set(["my template"]));
});

test("the spans of wait and work are children of the caller's span, and the work's own spans of the latter", async () => {
  const { locks, spans, inSpan } = createFixture();
  const other = await locks.acquire("k");
  const outer = inSpan("request", () =>
    locks.using("k", { keyTemplate: "the key" }, (lock) => locks.using("inner", async () => lock.token)),
  );
  await other.release();
  const token = String(await outer);
  const innerToken = expect.not.stringMatching(token);
  expect(spans.slice(1).map(({ name, parent, attributes }) => [name, parent, attributes["holdfast.token"]])).toEqual([
    ["acquire the key", "request", token],
    ["hold the key", "request", token],
    ["acquire lock", "hold the key", innerToken],
    ["hold lock", "hold the key", innerToken],
  ]);
  expect(spans.every(({ isEnded, statusCode }) => isEnded && statusCode === 0)).toBe(true);
  await locks.close();
});

test("spans have the status error after a loss, an error of the work, and a wait that timed out", async () => {
  const { locks, spans } = createFixture();
  const work = locks.using("k", async () => locks.lose("k", "expired"));
  await expect(work).rejects.toMatchObject({ code: "LOCK_LOST" });
  const failing = locks.using("k", () => Promise.reject(new RangeError("secret 7")));
  await expect(failing).rejects.toThrow(RangeError);
  locks.busy("k");
  await expect(locks.acquire("k", { wait: 0 })).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
  const failed = spans.filter(({ statusCode }) => statusCode === 2);
  expect(
    failed.map(({ name, attributes }) => [name, attributes["error.type"], attributes["holdfast.lost.reason"]]),
  ).toEqual([
    ["hold lock", "LOCK_LOST", "expired"],
    ["hold lock", "RangeError", undefined],
    ["acquire lock", "LOCK_TIMEOUT", undefined],
  ]);
  expect(JSON.stringify(spans)).not.toContain("secret 7");
  await locks.close();
});

test("after its end a recording receives nothing, and its counts are 0 again", async () => {
  const { locks, recording, points, spans, sumOf } = createFixture();
  const lock = await locks.acquire("k");
  const waiter = locks.acquire("k");
  recording[Symbol.dispose]();
  expect([sumOf("holdfast.lock.waiting"), sumOf("holdfast.lock.held")]).toEqual([0, 0]);
  expect(spans.every(({ isEnded }) => isEnded)).toBe(true);
  const counts = [points.length, spans.length];
  await lock.release();
  await (await waiter).release();
  await locks.using("k", () => undefined);
  expect([points.length, spans.length]).toEqual(counts);
  await locks.close();
});

test("locks that were held before are not counted when they end", async () => {
  const locks = createTestLocks();
  const lock = await locks.acquire("k");
  const telemetry = createFakeTelemetry();
  instrument(locks, { tracerProvider: telemetry.tracerProvider, meterProvider: telemetry.meterProvider });
  await lock.release();
  expect(telemetry.sumOf("holdfast.lock.held")).toBe(0);
  await locks.close();
});

test("wrong arguments are errors that name them", async () => {
  const locks = createTestLocks();
  expect(() => instrument({} as Locks)).toThrow("locks must be what connect() or createLocks() returns");
  expect(() => instrument(locks, { keyTemplate: "k" } as never)).toThrow("keyTemplate must be a function");
  expect(() => instrument(locks, { meterProvider: {} } as never)).toThrow("meterProvider must be a meter provider");
  expect(() => instrument(locks, { tracer: {} } as never)).toThrow('instrument has no option "tracer"');
  await expect(locks.acquire("k", { keyTemplate: 1 as never })).rejects.toThrow("keyTemplate must be a string");
  expect(() => intercept(locks, 1 as never)).toThrow("interceptor must be a function");
  expect(() => intercept({} as Locks, () => Promise.reject())).toThrow("locks must be what connect()");
  await locks.close();
});
