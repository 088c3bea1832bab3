// What clients believe to hold, as they were told, and what must not be believed at a time.

import type { Claim } from "../../src/spi/driver.ts";

/** What a client knows of one of its claims. */
export interface Mine {
  readonly claim: Claim;
  readonly key: string;
  readonly askedAt: number;
  /** Until when it believes what it was told. */
  deadline: number;
  token: bigint | null;
  heldAt: number;
  isAnswered: boolean;
  isLeft: boolean;
  isDetached: boolean;
}

/** Does its client believe to hold it? */
export function believes({ token, isLeft, deadline }: Mine, now: number): boolean {
  return token !== null && !isLeft && now < deadline;
}

export class Beliefs {
  readonly all: Mine[] = [];

  /** Those that are believed to be held. */
  now(now: number): Mine[] {
    return this.all.filter((mine) => believes(mine, now));
  }

  /** It is held with this token; gives what is wrong with that. */
  granted(mine: Mine, token: bigint, now: number): string[] {
    mine.token = token;
    mine.heldAt = now;
    const isWrong = (other: Mine): boolean => {
      if (other === mine || other.key !== mine.key || other.token === null) return false;
      return other.token === token || (mine.askedAt > other.heldAt && token < other.token);
    };
    return this.all
      .filter(isWrong)
      .map(({ claim, token: of }) => `${of} of ${claim.id}, then ${token} of ${mine.claim.id}`);
  }

  /** Keys that several believe to hold. */
  conflicts(now: number): string[] {
    const ids = new Map<string, string[]>();
    for (const { key, claim } of this.now(now)) ids.set(key, [...(ids.get(key) ?? []), claim.id]);
    return [...ids].filter(([, all]) => all.length > 1).map(([key, all]) => `${all} all believe to hold ${key}`);
  }
}
