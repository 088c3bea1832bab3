// Handles that became garbage before they were released: a warning, once, and the lock stays held up to maxHold.

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import type { AcquireOptions, LocksOptions } from "../../../src/client/options.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { until } from "../../../src/testing/until.ts";
import { FakeClock } from "../../support/fake-clock.ts";

setFlagsFromString("--expose-gc");
const collectGarbage: () => void = runInNewContext("gc");

const WITHIN = { within: 10_000 };
/** Leases do not depend on how long the collector takes. */
let clock: FakeClock;
let warnings: string[] = [];
let renewals = 0;
let locks: Locks;
let other: Locks;

function open(options: LocksOptions = {}): void {
  clock = new FakeClock();
  const store = memoryStore(clock);
  locks = createLocks(memory({ store }), { ttl: "300ms", label: "worker-1", clock, ...options });
  other = createLocks(memory({ store }), { clock });
  locks.on("renewed", () => renewals++);
}

const onWarning = ({ name, message }: Error): void => {
  if (name === "HoldfastWarning") warnings.push(message);
};

beforeEach(() => {
  warnings = [];
  renewals = 0;
  process.on("warning", onWarning);
  open();
});

afterEach(async () => {
  process.off("warning", onWarning);
  await Promise.all([locks.close(), other.close()]);
});

/** In a function of its own: a frame that still runs keeps what it has seen. */
async function forget(key: string, options: AcquireOptions = {}): Promise<void> {
  await locks.acquire(key, options);
}

/** Handles are watched from the first renewal of their locks on. */
async function collect(isOver: () => boolean, what: string): Promise<void> {
  await until(
    async () => {
      await clock.advance(50);
      collectGarbage();
      return isOver();
    },
    { ...WITHIN, what },
  );
}

/** Until handles that became garbage before have been told of, and three renewals have passed. */
function collectAndRenew(): Promise<void> {
  const first = renewals;
  return collect(() => renewals >= first + 3, "three renewals");
}

test("a lock whose handle is garbage stays held beyond its ttl, and is warned of once", async () => {
  const startedAt = clock.now();
  await forget("report");
  await collect(() => warnings.length > 0, "a warning");
  await collectAndRenew();
  await collectAndRenew();
  expect(clock.now() - startedAt).toBeGreaterThan(300);
  expect(await other.tryAcquire("report")).toBeNull();
  expect(warnings).toHaveLength(1);
  expect(warnings[0]).toMatch(
    /^a lock on "report" was acquired at 20\S+Z \(label "worker-1"\) and never released: its handle is garbage\. It stays held until this process ends/,
  );
});

test("maxHold ends it", async () => {
  await forget("report", { maxHold: "1s" });
  await collect(() => warnings.length > 0, "a warning");
  expect(warnings[0]).toContain("It stays held until maxHold");
  await clock.advance(1_500);
  expect(await other.tryAcquire("report")).not.toBeNull();
});

test("the logger of the client gets the warning, if it has one", async () => {
  await Promise.all([locks.close(), other.close()]);
  const logged: string[] = [];
  const log = (_fields: object, message: string): void => void logged.push(message);
  open({ logger: { debug: () => undefined, info: () => undefined, warn: log, error: log } });
  await forget("report");
  await collect(() => logged.some((message) => message.includes("never released")), "a warning");
  expect(warnings).toEqual([]);
});

test("several keys, and a request that joins: each handle is warned of, by its own keys", async () => {
  await locks.using("outer", async () => {
    await forget("outer");
    await locks.all("b", "a").acquire();
    await collect(() => warnings.length >= 2, "two warnings");
  });
  expect(warnings.map((warning) => warning.split(" was acquired")[0]).sort()).toEqual([
    'a lock on "a", "b"',
    'a lock on "outer"',
  ]);
});

test("no warning of handles that are in use, released, disposed, detached, lost or of a closed client", async () => {
  const kept = await locks.acquire("kept");
  const end = async (key: string, how: (lock: Awaited<ReturnType<Locks["acquire"]>>) => unknown): Promise<void> => {
    const lock = await locks.acquire(key);
    await collectAndRenew();
    await how(lock);
  };
  await end("released", (lock) => lock.release());
  await end("disposed", (lock) => lock[Symbol.asyncDispose]());
  await end("detached", (lock) => lock.detach());
  await end("revoked", (lock) => other.revoke("revoked", lock.token, { now: true }));
  // the inner handle joins the lock, which stays held after its release
  await locks.using("using", async () => {
    await end("using", (lock) => lock.release());
    await collectAndRenew();
  });
  await collectAndRenew();
  expect(kept.remainingMs).toBeGreaterThan(0);
  await kept.release();
  await end("closed", () => locks.close());
  collectGarbage();
  await new Promise(setImmediate);
  collectGarbage();
  await new Promise(setImmediate);
  expect(warnings).toEqual([]);
});
