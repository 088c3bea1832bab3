/** Claims and releases in great number, on keys that are free and on one that everybody wants: what a store keeps of them. */

import { setTimeout as delay } from "node:timers/promises";
import type { Driver } from "../../src/spi/driver.ts";
import { makeClaim } from "./claims.ts";

const CALLERS = 16;
/** Milliseconds. */
const RECHECK_MS = 5;
const KEYS = 500;
/** One in so many is claimed for the key that everybody wants, and one in so many leaves a tombstone. */
const HOT_EVERY = 8;
const TOMBSTONE_EVERY = 50;

/** Each of `count` claims is granted and released; it may have waited in a queue. */
export async function cycleClaims(driver: Driver, count: number): Promise<void> {
  let next = 0;
  const work = async (): Promise<void> => {
    for (let number = next++; number < count; number = next++) {
      const claim = makeClaim(number % HOT_EVERY === 0 ? "hot" : `key ${number % KEYS}`);
      let answer = await driver.claim(claim);
      while (answer.state === "waiting") {
        await delay(RECHECK_MS);
        answer = (await driver.renew([claim]))[0] ?? answer;
      }
      if (answer.state !== "held") throw new Error(`claim ${number} is ${answer.state}`);
      await driver.release([{ claim, hasUnansweredClaim: number % TOMBSTONE_EVERY === 0 }]);
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, work));
}
