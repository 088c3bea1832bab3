// Before an answer says "held", what must outlive a crash stands on the disk: for whichever call the answer is.

import { expect, test } from "vitest";
import { leakCheck } from "../support/leak-check.ts";
import { claimOf, cleanUp, held } from "./support.ts";
import type { FakeDisk } from "./world.ts";
import { turns, World } from "./world.ts";

leakCheck();
cleanUp();

test.each([
  ["long claim is being journaled", 120_000],
  ["detach is being journaled", 20_000],
])("a renewal that comes while its own %s is answered when that is done", async (_, ttlMs) => {
  const world = new World();
  await world.start();
  const disk = world.disk as FakeDisk;
  const one = await world.client();
  const claim = claimOf("k", { ttlMs });
  const detaches = ttlMs < 60_000;
  if (detaches) held(await one.driver.claim(claim));
  let open = (): void => undefined;
  disk.gate = new Promise((resolve) => {
    open = resolve;
  });
  const first = detaches ? one.driver.detach?.([claim]) : one.driver.claim(claim);
  await turns();
  expect(disk.writes.at(-1)).toBe("append");
  let answered = false;
  const renewal = one.driver.renew([claim]).then((answers) => {
    answered = true;
    return answers;
  });
  await turns();
  expect({ answered, journal: disk.journal }).toEqual({ answered: false, journal: "" });
  open();
  expect((await renewal)[0]).toMatchObject({ state: "held" });
  expect(disk.journal).toContain(claim.id);
  await first;
});

test("calls that come behind a claim that waits for the disk do not take it for gone: a renewal is not known, a release holds", async () => {
  const world = new World();
  await world.start();
  const disk = world.disk as FakeDisk;
  const [one, other] = [await world.client(), await world.client()];
  const claim = claimOf("k", { ttlMs: 50_000 });
  let open = (): void => undefined;
  disk.gate = new Promise((resolve) => {
    open = resolve;
  });
  const first = one.driver.claim(claim);
  await turns();
  expect(await other.driver.renew([claim])).toEqual([undefined]);
  await other.driver.release([claim]);
  open();
  expect(await first).toMatchObject({ state: "none" });
  expect(await other.driver.list({ prefix: "" }, 10)).toEqual([]);
});
