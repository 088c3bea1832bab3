// What a driver keeps of the claims that came through it. Needs no server.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Birth } from "../../src/drivers/redis/birth.ts";
import type { Answer, Claim } from "../../src/spi/driver.ts";
import { claimOf } from "../support/redis-scene.ts";

const HELD: Answer = { state: "held", token: 5n, tokens: 1, ttlMs: 1_000 };

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance"] });
});
afterEach(() => {
  vi.useRealTimers();
});

const claims = (count: number): Claim[] => Array.from({ length: count }, () => claimOf("key", { ttlMs: 1_000 }));

/** Those of these claims that it would place anew, were they lost. */
async function kept(birth: Birth, of: readonly Claim[]): Promise<readonly Claim[]> {
  let lost: readonly Claim[] = [];
  const raw = of.map(() => "b 1");
  const answers = of.map((): Answer => ({ state: "none" }));
  await birth.replaced(of, raw, answers, async (some) => {
    lost = some;
    return some.map(() => "n");
  });
  return lost;
}

test("of claims that nobody asks about any more nothing is kept, however many: they were detached, or their leases ended", async () => {
  const ignore = (): void => undefined;
  const birth = new Birth({
    root: "r:1:",
    longestTtlMs: 1_000,
    label: undefined,
    warn: ignore,
    isQuiet: true,
    forgot: ignore,
  });
  const granted = (some: readonly Claim[]): void => {
    for (const claim of some) birth.asked(claim);
    birth.learn(some, Array<Answer>(some.length).fill(HELD), []);
  };
  const [left, renewed] = [claims(2_000), claims(10)];
  granted(left);
  granted(renewed);
  expect(await kept(birth, [...left, ...renewed])).toEqual([...left, ...renewed]);
  for (let second = 0; second < 3; second++) {
    vi.advanceTimersByTime(900);
    birth.learn(renewed, Array<Answer>(renewed.length).fill(HELD), []);
  }
  granted(claims(4_000));
  expect(await kept(birth, [...left, ...renewed])).toEqual(renewed);
});
