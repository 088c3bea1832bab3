/**
 * `holdfast doctor --from URL`: checks that the tokens of this store are higher than those of the store that locks move
 * from.
 */

import { createLabel } from "../../../os/process-label.ts";
import type { Check, Claim, Driver } from "../../../spi/driver.ts";
import { ALL_PERMITS } from "../../../spi/driver.ts";
import { publicTag, randomId } from "../../../util/ids.ts";
import { toCommandError } from "../../errors.ts";
import type { Store } from "../../open-store.ts";
import { openStore } from "../../open-store.ts";
import { escapeControl } from "../../output.ts";

/** The result, and the tokenBase that this store needs; null: it needs none. */
export interface TokenComparison {
  readonly check: Check;
  readonly tokenBase: bigint | null;
}

/** A token of each store, and the time at which both were issued. */
export interface TokenSample {
  readonly oldToken: bigint;
  readonly newToken: bigint;
  /** Microseconds since 1970. */
  readonly micros: bigint;
  /** Do the tokens of this store follow its clock? */
  readonly followsClock: boolean;
}

const DAY_MICROS = 86_400_000_000n;
/** Tokens that follow a clock may be up to a day ahead of it; the second day is the time for the move. */
const CLOCK_HEADROOM = 2n * DAY_MICROS;
/** Other tokens rise by 2^42 with each election: room for four. */
const COUNTER_HEADROOM = 1n << 44n;

/** A claim on a key that no other client uses. */
export function createProbeClaim(prefix: string): Claim {
  return {
    id: randomId(),
    locks: [{ key: `${prefix}holdfast-doctor-${publicTag(randomId())}`, permits: ALL_PERMITS, limit: ALL_PERMITS }],
    ttlMs: 10_000,
    tokenCount: 1,
    floor: 0n,
    wait: false,
    label: createLabel("holdfast doctor"),
  };
}

/**
 * Compares one token of each store. All earlier tokens of the old store are lower than its sample, or within the
 * headroom.
 * @throws CommandError if the old store cannot be reached or used
 */
export async function compareTokens({ driver, traits }: Store, key: string, fromUrl: string): Promise<TokenComparison> {
  const unknown = (reason: string): TokenComparison => {
    return { check: { status: "unknown", name: "tokens", message: reason }, tokenBase: null };
  };
  const newToken = traits.fencing ? await sampleToken(driver, key) : null;
  const oldStore = await openStore({ url: fromUrl });
  try {
    for (const store of [{ driver, traits }, oldStore]) {
      if (!store.traits.fencing) return unknown(`not compared: ${store.driver.name} has no tokens that always rise`);
    }
    const oldToken = await sampleToken(oldStore.driver, key);
    if (oldToken === null || newToken === null) return unknown("not compared: a store grants no locks now");
    const followsClock = driver.name !== "zookeeper" && driver.name !== "etcd";
    return checkTokens({ oldToken, newToken, micros: BigInt(Date.now()) * 1_000n, followsClock }, oldStore.name);
  } catch (error) {
    throw toCommandError(error, oldStore.name);
  } finally {
    await oldStore.close();
  }
}

/** Judges the tokens of both stores. `name` is that of the old store. */
export function checkTokens({ oldToken, newToken, micros, followsClock }: TokenSample, name: string): TokenComparison {
  const isNearClock = (token: bigint): boolean => token > micros - CLOCK_HEADROOM && token < micros + CLOCK_HEADROOM;
  const headroom = isNearClock(oldToken) ? CLOCK_HEADROOM : COUNTER_HEADROOM;
  const isClock = followsClock && isNearClock(newToken);
  const message = `now ${newToken} here, ${oldToken} at ${escapeControl(name)}`;
  if (newToken > oldToken + (isClock ? 0n : headroom / 2n)) {
    return { check: { status: "ok", name: "tokens", message }, tokenBase: null };
  }
  if (isClock) {
    const hint =
      "the tokens here follow this store's clock: move when it has passed that number of microseconds since 1970";
    return { check: { status: "warn", name: "tokens", message, hint }, tokenBase: null };
  }
  const tokenBase = oldToken + headroom;
  const hint = `tokens would go backwards: move with tokenBase=${tokenBase}; if the move takes longer than a day, check again`;
  return { check: { status: "warn", name: "tokens", message, hint }, tokenBase };
}

/** Issues a token by a short lock. Null if the store does not grant it. */
async function sampleToken(driver: Driver, key: string): Promise<bigint | null> {
  const claim = createProbeClaim(key);
  const answer = await driver.claim(claim);
  if (answer.state !== "held") return null;
  await driver.release([{ claim, hasUnansweredClaim: false }]);
  return answer.token;
}
