/** What guardDataLoss promises of a database that loses data, step by step, without waiting for a grace period to end. */

import { expect } from "vitest";
import type { Claim, Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import type { FakeClock } from "../fake-clock.ts";
import { toReleases } from "../releases.ts";
import { expectHeld, makeClaim } from "../server-fixture.ts";

/** The longest ttl of the drivers: no step takes so long. */
export const MAX_TTL_MS = 60_000;

/** The pause of an answer in a grace period. */
export const PAUSE = { reason: "gracePeriod", remainingMs: expect.any(Number) };

export interface LossScenario {
  /** Two open drivers of the same tables, with guardDataLoss and this longest ttl. */
  readonly holder: Driver;
  readonly other: Driver;
  /** Keeps the state that lose() brings back. */
  backUp(): Promise<unknown>;
  lose(): Promise<unknown>;
  /** Nothing but the loss of its own row tells the holder that data was lost. */
  readonly isSeenByHolderOnly?: boolean;
  endGracePeriod(): Promise<unknown>;
  /** What is wrong with the tables. `isPaused`: claims may wait that fit. */
  inspect(isPaused: boolean): Promise<readonly string[]>;
}

export const exclusive = (overrides: Partial<Claim> = {}): Claim =>
  makeClaim("key", { ttlMs: MAX_TTL_MS, ...overrides });

/** A lock that is held while data is lost is granted to nobody else; its holder keeps it and its token. */
export async function expectLockKept(scenario: LossScenario): Promise<void> {
  const { holder, other, inspect } = scenario;
  const [first, waiting, second] = [exclusive(), exclusive(), exclusive()];
  await scenario.backUp();
  const { token } = expectHeld(await holder.claim(first));
  expect((await other.claim(waiting)).state).toBe("waiting");
  await scenario.lose();
  if (scenario.isSeenByHolderOnly === true)
    expect((await holder.renew([first]))[0]).toMatchObject({ state: "held", token });
  else expect(await other.claim(exclusive({ wait: false }))).toEqual({ state: "none", paused: PAUSE });
  await other.renew([waiting]);
  await other.release(toReleases(waiting));
  expect(await other.claim(second)).toMatchObject({ state: "waiting", paused: PAUSE });
  expect(await other.renew([second])).toMatchObject([{ state: "waiting", paused: PAUSE }]);
  expect((await holder.renew([first]))[0]).toMatchObject({ state: "held", token });
  expect(await inspect(true)).toEqual([]);
  // now it is known again who holds it
  expect(await other.claim(exclusive({ wait: false }))).toEqual({ state: "none" });
  await scenario.endGracePeriod();
  expect((await other.renew([second]))[0]?.state).toBe("waiting");
  expect(await holder.release(toReleases(first))).toEqual([true]);
  expect(expectHeld((await other.renew([second]))[0]).token).toBeGreaterThan(token);
  expect(await inspect(false)).toEqual([]);
  await other.release(toReleases(second));
}

/**
 * A restored backup contains a claim that had ended: it ends, since a later holder restores its own. Several holders of one key
 * are in order of their tokens again, in whatever order they come back.
 */
export async function expectHoldersInOrder(scenario: LossScenario): Promise<void> {
  const { holder, inspect } = scenario;
  const shared = (): Claim => makeClaim([{ key: "key", permits: 1, limit: 2 }], { ttlMs: MAX_TTL_MS });
  const over = shared();
  const { token: tokenOver } = expectHeld(await holder.claim(over));
  await scenario.backUp();
  await holder.release(toReleases(over));
  const holders = [shared(), shared()];
  const tokens: bigint[] = [];
  for (const claim of holders) tokens.push(expectHeld(await holder.claim(claim)).token);
  const waiting = shared();
  expect((await holder.claim(waiting)).state).toBe("waiting");
  await scenario.lose();
  expect(await holder.renew([waiting])).toMatchObject([{ state: "none" }]);
  expect(await holder.claim(shared())).toMatchObject({ state: "waiting", paused: PAUSE });
  for (const claim of holders.toReversed()) expect((await holder.renew([claim]))[0]?.state).toBe("held");
  expect(await inspect(true)).toEqual([]);
  const { items } = await holder.list({ key: "key" }, { max: 10 });
  const held = items.flatMap(({ answer }) => (answer.state === "held" ? [answer.token] : []));
  expect(held).toEqual(tokens);
  expect(held).not.toContain(tokenOver);
}

/**
 * A holder whose machine slept beyond the end of its lease does not restore its claim: another client was granted the key
 * meanwhile, and may come back later.
 */
export async function expectNotRestoredAfterSleep(scenario: {
  /** A driver by this clock, and one of another machine; both as those of LossScenario. */
  readonly sleeper: Driver;
  readonly clock: FakeClock;
  readonly other: Driver;
  lose(): Promise<unknown>;
  inspect?(): Promise<readonly string[]>;
}): Promise<void> {
  const { sleeper, clock, other, lose, inspect } = scenario;
  const [first, next] = [exclusive({ ttlMs: 300 }), exclusive()];
  expectHeld(await sleeper.claim(first));
  expect((await other.claim(next)).state).toBe("waiting");
  const readAnswer = async () => (await other.renew([next]))[0];
  await until(async () => (await readAnswer())?.state === "held", { within: 10_000, what: "the grant" });
  const { token } = expectHeld(await readAnswer());
  clock.suspend(1_000);
  await lose();
  expect(await sleeper.renew([first])).toEqual([{ state: "none" }]);
  expect(await readAnswer()).toMatchObject({ state: "held", token });
  expect(await sleeper.renew([first])).toEqual([{ state: "none" }]);
  expect((await inspect?.()) ?? []).toEqual([]);
  expect(await other.release(toReleases(next))).toEqual([true]);
}

/** A claim whose lease has ended, and which the store has removed for another one, is no loss of data. */
export async function expectNoLossAfterEnd(scenario: {
  /** Drivers without guardDataLoss. */
  readonly late: Driver;
  readonly other: Driver;
  /** Those of `late`. */
  readonly warnings: readonly string[];
}): Promise<void> {
  const { late, other, warnings } = scenario;
  const [first, next] = [exclusive({ ttlMs: 300 }), exclusive()];
  expectHeld(await late.claim(first));
  expect((await other.claim(next)).state).toBe("waiting");
  const isGranted = async () => (await other.renew([next]))[0]?.state === "held";
  await until(isGranted, { within: 10_000, what: "the grant" });
  expect((await late.renew([first]))[0]?.state).toBe("none");
  expect(warnings.filter((text) => /has lost/.test(text))).toEqual([]);
  expect((await late.diagnose?.())?.filter(({ name }) => name === "loss")).toEqual([]);
  expect(await other.release(toReleases(next))).toEqual([true]);
}
