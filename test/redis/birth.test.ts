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
  await birth.replaced(of, birth.renewing(of), raw, answers, async (some) => {
    lost = some;
    return some.map(() => "n");
  });
  return lost;
}

const opened = (): Birth =>
  new Birth({
    root: "r:1:",
    longestTtlMs: 1_000,
    label: undefined,
    warn: () => undefined,
    isQuiet: true,
    forgot: () => undefined,
  });

/** A majority gives a vote back and asks for it again with the same id. */
test("a claim that is placed again does not inherit the grant of its earlier place, whatever is still on its way", async () => {
  const birth = opened();
  const [claim] = claims(1) as [Claim];
  birth.learn([claim], [birth.asked(claim)], [HELD], []);
  const renewing = birth.renewing([claim]);
  birth.forget(claim.id);
  // the answer to the renewal comes after the release, and before the second place
  birth.learn([claim], renewing, [HELD], []);
  const again = birth.asked(claim);
  birth.learn([claim], renewing, [HELD], []);
  birth.pushed(claim.id, HELD);
  birth.learn([claim], [again], [{ state: "waiting", ttlMs: 1_000, recheckMs: 100 }], []);
  expect(await kept(birth, [claim])).toEqual([]);
  // a renewal of the second place tells of its own grant
  birth.learn([claim], birth.renewing([claim]), [{ ...HELD, token: 6n }], []);
  birth.learn([claim], renewing, [{ state: "none" }], []);
  expect(await kept(birth, [claim])).toEqual([claim]);
});

test("a grant that was pushed is placed anew, too", async () => {
  const birth = opened();
  const [claim] = claims(1) as [Claim];
  birth.learn([claim], [birth.asked(claim)], [{ state: "waiting", ttlMs: 1_000, recheckMs: 100 }], []);
  birth.pushed(claim.id, HELD);
  expect(await kept(birth, [claim])).toEqual([claim]);
});

test("of claims that nobody asks about any more nothing is kept, however many: they were detached, or their leases ended", async () => {
  const birth = opened();
  const granted = (some: readonly Claim[]): void => {
    const known = some.map((claim) => birth.asked(claim));
    birth.learn(some, known, Array<Answer>(some.length).fill(HELD), []);
  };
  const [left, renewed] = [claims(2_000), claims(10)];
  granted(left);
  granted(renewed);
  expect(await kept(birth, [...left, ...renewed])).toEqual([...left, ...renewed]);
  for (let second = 0; second < 3; second++) {
    vi.advanceTimersByTime(900);
    birth.learn(renewed, birth.renewing(renewed), Array<Answer>(renewed.length).fill(HELD), []);
  }
  granted(claims(4_000));
  expect(await kept(birth, [...left, ...renewed])).toEqual(renewed);
});
