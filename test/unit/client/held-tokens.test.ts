// heldTokens() of the client: with these tokens a driver restores the claims that its store has lost.

import { expect, test } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import type { ClaimId, DriverEvents, TokenRange } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { FakeClock } from "../../support/fake-clock.ts";

function createClient() {
  const clock = new FakeClock();
  const store = memoryStore(clock);
  const inner = memory({ store });
  const seen: { events: DriverEvents | null; lastId: ClaimId; isCut: boolean } = {
    events: null,
    lastId: "",
    isCut: false,
  };
  const driver = delegate(inner, {
    open(events) {
      seen.events = events;
      return inner.open(events);
    },
    claim(claim) {
      seen.lastId = claim.id;
      return inner.claim(claim);
    },
    async renew(claims) {
      seen.lastId = claims.at(-1)?.id as ClaimId;
      if (seen.isCut) throw new Error("cut off");
      return inner.renew(claims);
    },
  });
  const locks = createLocks(driver, { clock, ttl: "9s" });
  const heldTokens = (id = seen.lastId): TokenRange | null => seen.events?.heldTokens(id) ?? null;
  const openOther = () => createLocks(memory({ store }), { clock, ttl: "30s" });
  return { clock, locks, seen, heldTokens, openOther };
}

test("the tokens of a held lock until its release, none of a waiting or an unknown one", async () => {
  const { locks, heldTokens, openOther, clock } = createClient();
  const busy = await openOther().acquire("k");
  const waiting = locks.acquire("k");
  await clock.advance(0);
  expect(heldTokens()).toBeNull();
  await busy.release();
  const lock = await waiting;
  expect(heldTokens()).toMatchObject({ token: lock.token });
  expect(heldTokens("unknown")).toBeNull();
  const released = lock.release();
  expect(heldTokens()).toBeNull();
  await released;
});

test("none after the end of the lease by the clocks of this machine, before any timer has run", async () => {
  const { locks, heldTokens, seen, clock } = createClient();
  await locks.acquire("k");
  seen.isCut = true;
  clock.jump(8_099);
  expect(heldTokens()).not.toBeNull();
  clock.jump(1);
  expect(heldTokens()).toBeNull();
});

test("none after the machine slept through the rest of the lease", async () => {
  const { locks, heldTokens, seen, clock } = createClient();
  await locks.acquire("k");
  seen.isCut = true;
  clock.suspend(9_000);
  expect(heldTokens()).toBeNull();
});

test("none of a lock that is being attached, until the store has confirmed it", async () => {
  const { locks, heldTokens, seen, openOther, clock } = createClient();
  const reference = await (await openOther().acquire("k")).detach();
  seen.isCut = true;
  const attached = locks.attach(reference);
  await clock.advance(0);
  expect(seen.lastId).not.toBe("");
  expect(heldTokens()).toBeNull();
  seen.isCut = false;
  await clock.advance(2_000);
  const lock = await attached;
  expect(heldTokens()).toMatchObject({ token: lock.token });
  await lock.release();
});
