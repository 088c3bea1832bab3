/** A process that is stopped between reading one clock and reading the other has not slept. */

import assert from "node:assert/strict";
import { test } from "vitest";
import type { Clock } from "../../../src/util/clock.ts";
import { createSuspendAwareTime, SuspendDetector } from "../../../src/util/suspend-detector.ts";
import { FakeClock } from "../../support/fake-clock.ts";

/** A clock, and a stop of this many milliseconds while one or the other of its hands is read. */
function pausableClock(): { readonly clock: Clock; wall: number; uptime: number; advance(ms: number): void } {
  let now = 1_000;
  const stop = { wall: 0, uptime: 0 };
  const read = (clockName: "wall" | "uptime"): number => {
    now += stop[clockName];
    stop[clockName] = 0;
    return now;
  };
  const sources = { now: () => now, wall: () => read("wall"), uptime: () => read("uptime") };
  const clock = Object.assign(new FakeClock(), sources);
  const advance = (ms: number): void => {
    now += ms;
  };
  return Object.assign(stop, { clock, advance });
}

for (const clockName of ["wall", "uptime"] as const) {
  test(`a stop of the process while it reads the ${clockName} is not taken for a sleep, then or later`, () => {
    const fixture = pausableClock();
    const watch = new SuspendDetector(fixture.clock);
    for (let look = 0; look < 3; look++) {
      fixture.advance(20);
      fixture[clockName] = look === 0 ? 2_000 : 0;
      assert.equal(watch.suspendedMs(), 0, `look ${look}`);
    }
  });
}

test("suspend-aware time adds a suspension, which the uptime alone shows, and ignores steps of the wall clock", () => {
  let [now, uptime, wall] = [0, 0, 0];
  const time = createSuspendAwareTime(
    Object.assign(new FakeClock(), { now: () => now, uptime: () => uptime, wall: () => wall }),
  );
  const pass = (ms: number, suspendedMs: number): void => {
    now += ms;
    uptime += ms + suspendedMs;
  };
  pass(20, 249);
  assert.equal(time(), 20);
  pass(20, 1_000);
  assert.equal(time(), 40 + 1_249);
  wall += 3_600_000;
  pass(20, 0);
  assert.equal(time(), 60 + 1_249);
  pass(9, 1_000);
  assert.equal(time(), 69 + 1_249, "the uptime is not read again so soon");
});
