import { expect, test } from "vitest";
import type { CallKind } from "../../../../src/drivers/sql/bucket-schedule.ts";
import { BucketSchedule, REMOTE_ALONE_MS } from "../../../../src/drivers/sql/bucket-schedule.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { seededRandom } from "../../../support/seeded-random.ts";

const STEPS = 400;

interface Call {
  readonly kind: CallKind;
  startedAt: number | null;
  /** Ends the call, or gives it up. */
  leave(): void;
}

/** What must hold of the calls of one bucket. */
class Bucket {
  /** Those that are neither over nor given up, in their order. */
  readonly open = new Set<Call>();
  #last: Call | null = null;

  get waiting(): Call[] {
    return [...this.open].filter(({ startedAt }) => startedAt === null);
  }

  onStart(call: Call, now: number): void {
    const last = this.#last;
    if (last !== null && this.open.has(last))
      expect(now - Number(last.startedAt)).toBeGreaterThanOrEqual(REMOTE_ALONE_MS);
    const first = (kind: CallKind): Call | undefined => this.waiting.find((waiting) => waiting.kind === kind);
    const [renewal, release, claim] = [first("renewal"), first("release"), first("claim")];
    const afterClaim = renewal ?? release ?? claim;
    const afterRenewal = release ?? claim ?? renewal;
    const afterRelease = claim ?? renewal ?? release;
    const next = { claim: afterClaim, renewal: afterRenewal, release: afterRelease };
    expect(call).toBe(next[last?.kind ?? call.kind]);
    call.startedAt = now;
    this.#last = call;
  }

  /** After all microtasks: while calls wait, another one is current. */
  judge(now: number): void {
    if (this.waiting.length === 0) return;
    expect(this.open).toContain(this.#last);
    expect(now - Number(this.#last?.startedAt)).toBeLessThan(REMOTE_ALONE_MS);
  }
}

test.each([1, 2, 3, 4])("random calls that end, are given up or get stuck start in order (seed %i)", async (seed) => {
  const [random, clock] = [seededRandom(seed), new FakeClock()];
  const schedule = new BucketSchedule(clock);
  const buckets = Array.from({ length: 3 }, () => new Bucket());
  const take = (number: number): Call => {
    const bucket = buckets[number] as Bucket;
    const kind = random.pick(["release", "renewal", "claim"] as const);
    const call: Call = { kind, startedAt: null, leave: () => undefined };
    bucket.open.add(call);
    const leave = schedule.schedule(number, kind, () => bucket.onStart(call, clock.now()));
    return Object.assign(call, { leave: () => bucket.open.delete(call) && leave() });
  };
  for (let step = 0; step < STEPS; step++) {
    const number = random.int(buckets.length);
    const { open } = buckets[number] as Bucket;
    for (let event = random.int(4); event > 0; event--) {
      if (random.chance(0.5) || open.size === 0) take(number);
      else random.pick([...open]).leave();
    }
    if (random.chance(0.3)) clock.jump(random.int(2 * REMOTE_ALONE_MS));
    await clock.advance(random.int(REMOTE_ALONE_MS));
    for (const bucket of buckets) bucket.judge(clock.now());
  }
  await clock.advance(REMOTE_ALONE_MS * 2 * STEPS);
  for (const [number, { open, waiting }] of buckets.entries()) {
    expect(waiting).toEqual([]);
    for (const call of open) call.leave();
    expect(take(number).startedAt).toBe(clock.now());
  }
  await clock.advance(REMOTE_ALONE_MS);
  expect(clock.pendingTimers).toBe(0);
});
