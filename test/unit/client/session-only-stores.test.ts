// The ttl on a store that knows only sessions, as ZooKeeper does.

import { expect, test } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import { delegate } from "../../../src/conformance/delegate.ts";
import { memory } from "../../../src/drivers/memory.ts";
import type { Driver } from "../../../src/spi/driver.ts";

function sessionOnlyDriver(): Driver {
  const driver = memory();
  const terms = { ...driver.traits, lease: { claim: false, sessionMs: 30_000 } };
  return delegate(driver, {
    traits: terms,
    claim: (claim) => driver.claim({ ...claim, ttlMs: 30_000 }),
  });
}

test("a ttl causes a warning only where one was given, and once per client", async () => {
  const warnings: string[] = [];
  const heard = ({ message }: Error): number => warnings.push(message);
  process.on("warning", heard);
  // warnings are emitted in a later turn
  const told = async (): Promise<string[]> => {
    await new Promise((resolve) => setImmediate(resolve));
    return warnings;
  };
  try {
    const plain = createLocks(sessionOnlyDriver());
    await (await plain.acquire("k")).release();
    await (await plain.acquire("k", { ttl: "session" })).release();
    expect(await told()).toEqual([]);
    const given = createLocks(sessionOnlyDriver(), { ttl: "10s" });
    await (await given.acquire("k")).release();
    await (await given.acquire("k", { ttl: "20s" })).release();
    expect(await told()).toEqual([expect.stringMatching(/has only session leases: ttl is ignored/)]);
    await (await plain.acquire("k", { ttl: "10s" })).release();
    expect(await told()).toHaveLength(2);
    await Promise.all([plain.close(), given.close()]);
  } finally {
    process.off("warning", heard);
  }
});

test("the reason a lock cannot be detached names the store, not an option that was not set", async () => {
  const locks = createLocks(sessionOnlyDriver());
  const lock = await locks.acquire("k", { ttl: "10m" });
  await expect(lock.detach()).rejects.toMatchObject({
    code: "UNSUPPORTED",
    message: 'cannot detach "k": memory has only session leases: all locks end with the client\'s session',
  });
  await lock.release();
  await locks.close();
});
