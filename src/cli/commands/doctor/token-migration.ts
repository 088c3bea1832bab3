/** `holdfast doctor --from URL`: do the tokens of this store lie above those of the one that locks move from? */

import type { Check, Claim, Driver } from "../../../spi/driver.ts";
import { ALL_PERMITS } from "../../../spi/driver.ts";
import { randomId } from "../../../util/ids.ts";
import { toCommandError } from "../../errors.ts";
import { createLabel } from "../../lock-request.ts";
import type { Store } from "../../open-store.ts";
import { openStore } from "../../open-store.ts";
import { escapeControl } from "../../output.ts";

/** What is found, and the tokenBase that is needed; null: none. */
export interface TokenComparison {
  readonly check: Check;
  readonly tokenBase: bigint | null;
}

/** Tokens, and the time in microseconds since 1970 at which they were had. */
export interface TokenSample {
  /** What the old store has given out just now. */
  readonly oldToken: bigint;
  /** What this one has. */
  readonly newToken: bigint;
  readonly micros: bigint;
  /** Do those of this store follow its clock by themselves? */
  readonly followsClock: boolean;
}

const DAY_MICROS = 86_400_000_000n;
/** Of a clock's tokens some may lie a day ahead of it, and the move takes its time. */
const CLOCK_HEADROOM = 2n * DAY_MICROS;
/** Other tokens rise by 2^42 with each election: room for four. */
const COUNTER_HEADROOM = 1n << 44n;

/** A claim of a key that nobody else uses. */
export function createProbeClaim(prefix: string): Claim {
  return {
    id: randomId(),
    holds: [{ key: `${prefix}holdfast-doctor-${randomId()}`, permits: ALL_PERMITS, limit: ALL_PERMITS }],
    ttlMs: 10_000,
    tokens: 1,
    floor: 0n,
    wait: false,
    label: createLabel("holdfast doctor"),
  };
}

/**
 * Takes a token of both stores. Those that the old one gave out before lie below, or within what is left as room.
 * @throws CommandError if the old one cannot be reached, or asked
 */
export async function compareTokens({ driver }: Store, key: string, fromUrl: string): Promise<TokenComparison> {
  const unknown = (reason: string): TokenComparison => {
    return { check: { level: "unknown", what: "tokens", says: reason }, tokenBase: null };
  };
  const newToken = driver.traits.fencing ? await sampleToken(driver, key) : null;
  const oldStore = await openStore(fromUrl);
  try {
    for (const { traits, name } of [driver, oldStore.driver]) {
      if (!traits.fencing) return unknown(`${name} has none that rise for ever`);
    }
    const oldToken = await sampleToken(oldStore.driver, key);
    if (oldToken === null || newToken === null) return unknown("not compared: a store grants nothing now");
    const followsClock = driver.name !== "zookeeper";
    return checkTokens({ oldToken, newToken, micros: BigInt(Date.now()) * 1_000n, followsClock }, oldStore.name);
  } catch (error) {
    throw toCommandError(error, oldStore.name);
  } finally {
    await oldStore.locks.close();
  }
}

/** What follows from the tokens of both; `name` is the old store's. */
export function checkTokens({ oldToken, newToken, micros, followsClock }: TokenSample, name: string): TokenComparison {
  const isNearClock = (token: bigint): boolean => token > micros - CLOCK_HEADROOM && token < micros + CLOCK_HEADROOM;
  const headroom = isNearClock(oldToken) ? CLOCK_HEADROOM : COUNTER_HEADROOM;
  const isClock = followsClock && isNearClock(newToken);
  const says = `${newToken} here just now, ${oldToken} at ${escapeControl(name)}`;
  if (newToken > oldToken + (isClock ? 0n : headroom / 2n)) {
    return { check: { level: "good", what: "tokens", says }, tokenBase: null };
  }
  if (isClock) {
    const advice =
      "those here follow this store's clock: move when it has passed that number of microseconds since 1970";
    return { check: { level: "doubtful", what: "tokens", says, advice }, tokenBase: null };
  }
  const tokenBase = oldToken + headroom;
  const advice = `they would go backwards: move with tokenBase=${tokenBase}, and ask again if that takes longer than a day`;
  return { check: { level: "doubtful", what: "tokens", says, advice }, tokenBase };
}

/** Null: none is granted now. */
async function sampleToken(driver: Driver, key: string): Promise<bigint | null> {
  const claim = createProbeClaim(key);
  const answer = await driver.claim(claim);
  if (answer.state !== "held") return null;
  await driver.release([claim]);
  return answer.token;
}
