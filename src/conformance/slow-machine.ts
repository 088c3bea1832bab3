/** Measures whether the machine stalled during a test: then short leases end too early. */

import type { Driver } from "../spi/driver.ts";
import { delegate } from "../testing/delegate.ts";

const SAMPLE_MS = 4;

export interface SlowMachineDetector {
  /** The longest turn of the event loop, or call of a timed driver, so far. */
  slowestMs(): number;
  /** Wraps a driver so that its calls are timed. */
  timeCalls(driver: Driver): Driver;
  stop(): void;
}

export function detectSlowMachine(): SlowMachineDetector {
  let slowest = 0;
  let last = performance.now();
  const sample = (): number => {
    const now = performance.now();
    slowest = Math.max(slowest, now - last);
    last = now;
    return slowest;
  };
  const timer = setInterval(sample, SAMPLE_MS);

  async function time<T>(call: Promise<T>): Promise<T> {
    const start = performance.now();
    try {
      return await call;
    } finally {
      slowest = Math.max(slowest, performance.now() - start);
    }
  }

  return {
    slowestMs: sample,
    timeCalls: (driver) =>
      delegate(driver, {
        claim: (claim) => time(driver.claim(claim)),
        renew: (claims, tokenCounts) => time(driver.renew(claims, tokenCounts)),
        release: (releases) => time(driver.release(releases)),
        ...(driver.detach && {
          detach: (claims, remainingMs) => time(driver.detach?.(claims, remainingMs) ?? Promise.resolve([])),
        }),
        list: (query, options) => time(driver.list(query, options)),
      }),
    stop: () => clearInterval(timer),
  };
}
