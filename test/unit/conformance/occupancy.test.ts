import { afterEach, describe, expect, test } from "vitest";
import { Occupancy } from "../../../src/conformance/occupancy.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import { FakeClock } from "../../support/fake-clock.ts";

const TTL_MS = 1_000;

const clients: Locks[] = [];
afterEach(async () => {
  for (const locks of clients.splice(0)) await locks.close();
});

/** A client of a store of its own, so that each is granted what it asks for; all by one clock. */
function connect(clock: FakeClock): Locks {
  const locks = createLocks(memory({ store: memoryStore(clock) }), { clock, ttl: TTL_MS });
  clients.push(locks);
  return locks;
}

describe("the check for holders that overlap", () => {
  test.each([
    ["write", "write", false],
    ["write", "read", false],
    ["read", "write", false],
    ["read", "read", true],
    ["permit", "permit", true],
  ] as const)("%s beside %s: %s", async (first, second, isAdmitted) => {
    const clock = new FakeClock();
    const occupancy = new Occupancy(2, false);
    occupancy.enter(await connect(clock).acquire("key"), first);
    const enter = async () => void occupancy.enter(await connect(clock).acquire("key"), second);
    if (isAdmitted) await enter();
    else await expect(enter()).rejects.toThrow('too many hold "key"');
  });

  test("a holder that has left excludes nobody; a third permit of two is one too many", async () => {
    const clock = new FakeClock();
    const occupancy = new Occupancy(2, false);
    const enter = async () => occupancy.enter(await connect(clock).acquire("key"), "permit");
    await enter();
    const second = await enter();
    await expect(enter()).rejects.toThrow('too many hold "key"');
    occupancy.leave(second);
    await enter();
  });

  test("a holder whose lease ended in a stall, before its code could go on, is none", async () => {
    const clock = new FakeClock();
    const occupancy = new Occupancy(2, false);
    const stalled = await connect(clock).acquire("key");
    occupancy.enter(stalled, "write");
    clock.jump(TTL_MS);
    const next = await connect(clock).acquire("key");
    occupancy.enter(next, "write");
    expect(() => stalled.throwIfLost()).toThrow("lost the lock");
    next.throwIfLost();
  });

  test("tokens that do not rise are an error", async () => {
    const clock = new FakeClock();
    const occupancy = new Occupancy(2, true);
    const early = await connect(clock).acquire("key");
    clock.jump(1);
    const late = await connect(clock).acquire("key");
    occupancy.leave(occupancy.enter(late, "write"));
    expect(() => occupancy.enter(early, "write")).toThrow("rise");
  });
});
