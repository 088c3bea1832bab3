import { expect, test } from "vitest";
import type { CallKind } from "../../../../src/drivers/sql/call-kinds.ts";
import type { ScheduledCall } from "../../../../src/drivers/sql/call-scheduler.ts";
import { CallScheduler, REMOTE_ALONE_MS } from "../../../../src/drivers/sql/call-scheduler.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { seededRandom } from "../../../support/seeded-random.ts";

const STEPS = 400;

/** A call of one bucket. Claims that ask the pool may not have a connection for long. */
class Call implements ScheduledCall {
  readonly bucket: number;
  readonly kind: CallKind;
  readonly #clock: FakeClock;
  readonly #onStart: (call: Call) => void;
  startedAt: number | null = null;
  at: "queued" | "throttled" | "asking" | "sent" = "queued";

  constructor(bucket: number, kind: CallKind, clock: FakeClock, onStart: (call: Call) => void) {
    this.bucket = bucket;
    this.kind = kind;
    this.#clock = clock;
    this.#onStart = onStart;
  }

  throttle(): void {
    expect([this.kind, this.at]).toEqual(["claim", "queued"]);
    this.#onStart(this);
    this.startedAt = this.#clock.now();
    this.at = "throttled";
  }

  ask(): void {
    if (this.kind === "claim") expect(this.at).toBe("throttled");
    else {
      expect(this.at).toBe("queued");
      this.#onStart(this);
      this.startedAt = this.#clock.now();
    }
    this.at = "asking";
  }
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
    this.#last = call;
  }

  /** After all microtasks: while calls wait, another one is current. */
  judge(now: number): void {
    if (this.waiting.length === 0) return;
    expect(this.open).toContain(this.#last);
    expect(now - Number(this.#last?.startedAt)).toBeLessThan(REMOTE_ALONE_MS);
  }
}

/** After all microtasks: a claim is throttled only while two others are asking, and no more are. */
function judgeClaims(buckets: readonly Bucket[]): void {
  const claims = buckets.flatMap(({ open }) => [...open]).filter(({ kind }) => kind === "claim");
  const askingCount = claims.filter(({ at }) => at === "asking").length;
  expect(askingCount).toBeLessThanOrEqual(2);
  if (claims.some(({ at }) => at === "throttled")) expect(askingCount).toBe(2);
}

test.each([1, 2, 3, 4])("random calls that end, are given up or get stuck start in order (seed %i)", async (seed) => {
  const [random, clock] = [seededRandom(seed), new FakeClock()];
  const scheduler = new CallScheduler(clock);
  const buckets = Array.from({ length: 3 }, () => new Bucket());
  const take = (number: number): Call => {
    const bucket = buckets[number] as Bucket;
    const kind = random.pick(["release", "renewal", "claim"] as const);
    const call = new Call(number, kind, clock, (started) => bucket.onStart(started, clock.now()));
    bucket.open.add(call);
    scheduler.add(call);
    return call;
  };
  const send = (call: Call): void => {
    if (call.at !== "asking") return;
    call.at = "sent";
    scheduler.onSent(call);
  };
  const end = (call: Call): void => {
    (buckets[call.bucket] as Bucket).open.delete(call);
    scheduler.onOver(call, null);
  };
  for (let step = 0; step < STEPS; step++) {
    const number = random.int(buckets.length);
    const { open } = buckets[number] as Bucket;
    for (let event = random.int(5); event > 0; event--) {
      if (random.chance(0.4) || open.size === 0) take(number);
      else if (random.chance(0.3)) send(random.pick([...open]));
      else end(random.pick([...open]));
    }
    if (random.chance(0.3)) clock.jump(random.int(2 * REMOTE_ALONE_MS));
    await clock.advance(random.int(REMOTE_ALONE_MS));
    for (const bucket of buckets) bucket.judge(clock.now());
    judgeClaims(buckets);
  }
  await clock.advance(REMOTE_ALONE_MS * 2 * STEPS);
  for (const [number, { open, waiting }] of buckets.entries()) {
    expect(waiting).toEqual([]);
    for (const call of open) end(call);
    expect(take(number).startedAt).toBe(clock.now());
  }
  await clock.advance(REMOTE_ALONE_MS);
  expect(clock.pendingTimers).toBe(0);
});
