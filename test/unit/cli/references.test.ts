import { expect, test } from "vitest";
import { findOuterLocks } from "../../../src/cli/commands/run/outer-locks.ts";
import type { Store } from "../../../src/cli/open-store.ts";
import { findHeld } from "../../../src/cli/references.ts";
import { Client } from "../../../src/client/client.ts";
import { bindLocks } from "../../../src/client/locks.ts";
import { parseClientOptions } from "../../../src/client/options.ts";
import { memory } from "../../../src/drivers/memory.ts";
import type { DetachedClaim } from "../../../src/protocol/lock-reference.ts";
import { decodeReference } from "../../../src/protocol/lock-reference.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { randomId } from "../../../src/util/ids.ts";

async function openStore(driver: Driver = memory()): Promise<Store> {
  const client = new Client(driver, parseClientOptions({}), Math.random);
  const { traits } = await client.open();
  return { locks: bindLocks(client), driver, traits, name: "the store", close: () => client.close() };
}

async function holdShared(store: Store, key: string): Promise<{ readonly part: DetachedClaim; readonly text: string }> {
  const text = await (await store.locks.rw(key).read.acquire()).detach();
  return { part: decodeReference(text)[0] as DetachedClaim, text };
}

test("the lock of a reference is found behind a thousand other holders of its key", async () => {
  const store = await openStore();
  for (let index = 0; index < 1_000; index++) {
    const locks = [{ key: "k", permits: 1, limit: ALL_PERMITS }] as const;
    const claim = { id: randomId(), locks, ttlMs: 60_000, tokenCount: 1, floor: 0n, wait: false, label: "other" };
    await store.driver.claim(claim);
  }
  const { part } = await holdShared(store, "k");
  expect(await findHeld(store, part, "k")).toMatchObject({ state: "held", token: part.firstToken });
  await store.driver.release([{ claim: part.claim, hasUnansweredClaim: false }]);
  expect(await findHeld(store, part, "k")).toBeNull();
  await store.locks.close();
});

test("a lock whose details the store does not list is found, and its outer run is named without them", async () => {
  const driver = memory();
  const withoutDetails: Driver = {
    ...driver,
    async list(query, options) {
      const { items } = await driver.list(query, options);
      return {
        items: items.map((view, index) => {
          const { answer } = view;
          if (index === 0 || answer.state !== "held") return view;
          return { ...view, label: "", ageMs: 0, answer: { ...answer, token: 0n } };
        }),
      };
    },
  };
  const store = await openStore(withoutDetails);
  await holdShared(store, "k");
  const { part, text } = await holdShared(store, "k");
  expect(await findHeld(store, part, "k")).toMatchObject({ state: "held", token: null });
  const other = { ...part, firstToken: part.firstToken + 1n };
  expect(await findHeld(await openStore(driver), other, "k")).toBeNull();
  const exclusive = { keys: ["k"], mode: "exclusive" } as const;
  await expect(findOuterLocks(store, exclusive, { HOLDFAST_REFERENCE: text })).rejects.toMatchObject({
    kind: "deadlock",
    message: 'deadlock: "k" is already held by an outer run',
  });
  await store.locks.close();
});

test("a store that does not answer or fails is an error, not a lock that has ended", async () => {
  const store = await openStore();
  const { part } = await holdShared(store, "k");
  const failing = {
    name: "the store",
    driver: { ...store.driver, list: () => Promise.reject(new Error("no quorum")) },
  };
  await expect(findHeld(failing, part, "k")).rejects.toMatchObject({ kind: "unreachable" });
  await store.locks.close();
});
