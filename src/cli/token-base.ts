/** `holdfast doctor --from URL`: do the tokens of this store lie above those of the one that locks move from? */

import { newId } from "../ids.ts";
import type { Claim, Driver, Finding } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import { commandError } from "./failure.ts";
import { visible } from "./output.ts";
import type { Store } from "./store.ts";
import { openStore } from "./store.ts";
import { labelFor } from "./wanted.ts";

/** What is found, and the tokenBase that is needed; null: none. */
export interface TokensFound {
  readonly finding: Finding;
  readonly tokenBase: bigint | null;
}

/** Tokens, and the time in microseconds since 1970 at which they were had. */
export interface TokensMet {
  /** What the old store has given out just now. */
  readonly old: bigint;
  /** What this one has. */
  readonly fresh: bigint;
  readonly micros: bigint;
  /** Do those of this store follow its clock by themselves? */
  readonly followsClock: boolean;
}

const DAY_MICROS = 86_400_000_000n;
/** Of a clock's tokens some may lie a day ahead of it, and the move takes its time. */
const CLOCK_ROOM = 2n * DAY_MICROS;
/** Other tokens rise by 2^42 with each election: room for four. */
const COUNTER_ROOM = 1n << 44n;

/** A claim of a key that nobody else uses. */
export function probeOf(prefix: string): Claim {
  return {
    id: newId(),
    holds: [{ key: `${prefix}holdfast-doctor-${newId()}`, permits: ALL_PERMITS, limit: ALL_PERMITS }],
    ttlMs: 10_000,
    tokens: 1,
    floor: 0n,
    wait: false,
    label: labelFor("holdfast doctor"),
  };
}

/**
 * Takes a token of both stores. Those that the old one gave out before lie below, or within what is left as room.
 * @throws CommandError if the old one cannot be reached, or asked
 */
export async function tokensFound({ driver }: Store, key: string, from: string): Promise<TokensFound> {
  const unknown = (why: string): TokensFound => {
    return { finding: { level: "unknown", what: "tokens", says: why }, tokenBase: null };
  };
  const fresh = driver.traits.fencing ? await tokenOf(driver, key) : null;
  const theirs = await openStore(from);
  try {
    for (const { traits, name } of [driver, theirs.driver]) {
      if (!traits.fencing) return unknown(`${name} has none that rise for ever`);
    }
    const old = await tokenOf(theirs.driver, key);
    if (old === null || fresh === null) return unknown("not compared: a store grants nothing now");
    const followsClock = driver.name !== "zookeeper";
    return tokenFinding({ old, fresh, micros: BigInt(Date.now()) * 1_000n, followsClock }, theirs.name);
  } catch (error) {
    throw commandError(error, theirs.name);
  } finally {
    await theirs.locks.close();
  }
}

/** What follows from the tokens of both; `name` is the old store's. */
export function tokenFinding({ old, fresh, micros, followsClock }: TokensMet, name: string): TokensFound {
  const follows = (token: bigint): boolean => token > micros - CLOCK_ROOM && token < micros + CLOCK_ROOM;
  const room = follows(old) ? CLOCK_ROOM : COUNTER_ROOM;
  const isClock = followsClock && follows(fresh);
  const says = `${fresh} here just now, ${old} at ${visible(name)}`;
  if (fresh > old + (isClock ? 0n : room / 2n)) {
    return { finding: { level: "good", what: "tokens", says }, tokenBase: null };
  }
  if (isClock) {
    const advice =
      "those here follow this store's clock: move when it has passed that number of microseconds since 1970";
    return { finding: { level: "doubtful", what: "tokens", says, advice }, tokenBase: null };
  }
  const tokenBase = old + room;
  const advice = `they would go backwards: move with tokenBase=${tokenBase}, and ask again if that takes longer than a day`;
  return { finding: { level: "doubtful", what: "tokens", says, advice }, tokenBase };
}

/** Null: none is granted now. */
async function tokenOf(driver: Driver, key: string): Promise<bigint | null> {
  const claim = probeOf(key);
  const answer = await driver.claim(claim);
  if (answer.state !== "held") return null;
  await driver.release([claim]);
  return answer.token;
}
