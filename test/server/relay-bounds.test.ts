// What a relay bounds, forgets and logs by itself, whatever its store does.

import { expect, test } from "vitest";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import { newId } from "../../src/ids.ts";
import { limitsFrom } from "../../src/server/limits.ts";
import { openRelay } from "../../src/server/relay.ts";
import { Session } from "../../src/server/session.ts";
import { leakCheck } from "../support/leak-check.ts";
import { accessFor, known } from "./accounts.ts";
import { claimOf, cleanUp, client, held, running } from "./support.ts";
import { FakeClock } from "./world.ts";

leakCheck();
cleanUp();

test("the bounds of claims hold for a store behind the server, too: in all, of a client, of an account", async () => {
  const ana = known("ana");
  const access = accessFor(ana);
  for (const [limits, what] of [
    [{ claims: 2 }, "at most 2 claims on this server"],
    [{ claimsPerSession: 2 }, "at most 2 claims of one client"],
    [{ claimsPerAccount: 2 }, "at most 2 claims of one account"],
  ] as const) {
    const it = await running({ driver: memory(), limits, access });
    const { driver } = await client(it.addresses[0] as string, { credential: ana.credential });
    const [a, b, more] = [claimOf("a"), claimOf("b"), claimOf("more")];
    held(await driver.claim(a));
    held(await driver.claim(b));
    await expect(driver.claim(more)).rejects.toThrow(what);
    // what is there goes on
    held(await driver.claim(a));
    expect(await driver.renew([a, b])).toMatchObject([{ state: "held" }, { state: "held" }]);
    expect(await driver.release([a])).toEqual([true]);
    held(await driver.claim(more));
    await it.close();
  }
});

test("what the store has forgotten by itself takes no room for ever", async () => {
  const clock = new FakeClock();
  const relay = await openRelay({
    driver: memory(),
    clock,
    sessionMs: 30_000,
    probe: () => "unknown",
    log: () => undefined,
    limits: limitsFrom({ claims: 2 }),
  });
  const mine = new Session({ session: newId(), label: "", pid: null, pidStart: null }, false, clock.now());
  const { backend } = relay;
  const ended = [claimOf("a", { ttlMs: 1_000 }), claimOf("b", { ttlMs: 1_000 })];
  for (const claim of ended) await backend.claim(mine, claim);
  await backend.detach(
    mine,
    ended.map(({ id }) => id),
  );
  await expect(backend.claim(mine, claimOf("c"))).rejects.toThrow("at most 2 claims on this server");
  await clock.pass(5_000);
  expect(await backend.claim(mine, claimOf("c"))).toMatchObject({ state: "held" });
  await relay.close();
});

test("renewals that a store did not answer leave no trace of claims that it never told of", async () => {
  const inner = memory();
  const it = await running({
    driver: { ...inner, renew: () => Promise.reject(new Error("connection refused")) },
  });
  const { driver } = await client(it.addresses[0] as string);
  const never = Array.from({ length: 50 }, (_, n) => claimOf(`k${n}`));
  await expect(driver.renew(never)).rejects.toThrow("could not ask its store");
  expect(it.stats().claims).toBe(0);
});

test("a forced release is logged with its reason, whoever placed the lock", async () => {
  const store = memoryStore();
  const it = await running({ driver: memory({ store }) });
  const { driver } = await client(it.addresses[0] as string);
  const elsewhere = memory({ store });
  await elsewhere.open(() => undefined);
  const [here, there] = [claimOf("here"), claimOf("there")];
  const tokens = [held(await driver.claim(here)).token, held(await elsewhere.claim(there)).token] as const;
  const targets = [
    { key: "here", token: tokens[0], now: false, reason: "its host is gone" },
    { key: "there", token: tokens[1], now: true, reason: "so is this one" },
    { key: "there", token: 5n, now: true, reason: "not held" },
  ];
  expect(await driver.revoke?.(targets)).toEqual([true, true, false]);
  const told = it.logged.filter((line) => line.startsWith("a lock was"));
  expect(told).toEqual([
    expect.stringMatching(/^a lock was revoked .*"here".*its host is gone/),
    expect.stringMatching(/^a lock was taken away at once .*"there".*so is this one/),
  ]);
  await elsewhere.close();
});
