/**
 * The oracle: gives the same random commands to a driver and to the lock table, and compares the answers. Leases are
 * long and every release is a command, so no answer depends on time. It is the differential test of the three rules that
 * drivers restate (docs/design/rules.md). Tokens are compared by order, and with the bounds that the token rule gives them:
 * their values depend on the store's clock, and a store may leave out numbers.
 */

import assert from "node:assert/strict";
import type { Timestamps } from "../lock-table/table.ts";
import { LockTable } from "../lock-table/table.ts";
import type { Answer, Claim, Driver, LockSpec } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import type { Random } from "../testing/random.ts";
import { createRandom } from "../testing/random.ts";
import { publicTag, randomId } from "../util/ids.ts";
import { isRefusal } from "./context.ts";
import type { ConformanceSettings } from "./options.ts";

const KEYS = ["a", "b", "c"] as const;
const LEASE_MS = 3_600_000;
/** So far ahead of the clock are some floors, which then decide the tokens: less than the day that the floor rule allows. */
const FLOOR_LEAD_MICROS = 3_600_000_000n;
/** So far ahead are others, which are refused. */
const REFUSED_LEAD_MICROS = 172_800_000_000n;
/** A store may leave out so many numbers with each command. */
const MAX_UNUSED_NUMBERS = 128n;

/** A claim that was made at least once, and its client. */
interface KnownClaim {
  readonly claim: Claim;
  readonly driver: Driver;
  /** Released with a claim call unanswered: its answer must be "none" from now on. */
  hasTombstone: boolean;
  isGone: boolean;
  isRevoked: boolean;
  token: bigint | null;
}

/** Options of a run of the oracle. */
export interface OracleOptions {
  readonly seed: number;
  /** How many commands. */
  readonly steps: number;
  /**
   * Describes what is wrong in the store's own state (see TestStore.inspect). Called after each command; must return
   * nothing.
   */
  readonly inspect?: (() => Promise<readonly string[]>) | undefined;
}

interface OracleRun {
  readonly settings: Pick<ConformanceSettings, "traits" | "verbs">;
  readonly random: Random;
  readonly drivers: readonly [Driver, ...Driver[]];
  readonly table: LockTable;
  readonly claims: KnownClaim[];
  /** One above the last token that the driver has granted on each key. */
  readonly nextTokens: Map<string, bigint>;
  /** The highest of them, and of all keys. */
  highestToken: bigint;
  /** The highest floor of a claim: it may have been granted and released without an answer. */
  highestFloor: bigint;
  /** The store issues tokens by the token rule; false: by numbers of its own. Known after the first grant. */
  followsClock: boolean;
  /** The clock before the last command, in microseconds. */
  sentAt: bigint;
  /** The commands so far, for a failure message. */
  readonly log: string[];
  /** The last command released several claims: the driver may grant the next ones in any order. */
  isBatch: boolean;
}

/**
 * Runs random commands on one or more opened drivers of one empty store. Leaves the store empty.
 * @throws Error with the seed, the last commands and the difference
 */
export async function oracle(
  drivers: readonly [Driver, ...Driver[]],
  settings: Pick<ConformanceSettings, "traits" | "verbs">,
  { seed, steps, inspect }: OracleOptions,
): Promise<void> {
  const run: OracleRun = {
    settings,
    random: createRandom(seed),
    drivers,
    table: new LockTable(),
    claims: [],
    nextTokens: new Map(),
    highestToken: 0n,
    highestFloor: 0n,
    followsClock: false,
    sentAt: readMicros(),
    log: [],
    isBatch: false,
  };
  try {
    for (let step = 0; step < steps; step++) {
      run.sentAt = readMicros();
      await runCommand(run);
      await compareStates(run);
      assert.deepEqual((await inspect?.()) ?? [], [], "nothing is wrong in the store's own state");
    }
    for (const knownClaim of liveClaims(run)) await release(run, [knownClaim], false);
    await compareStates(run);
    assert.deepEqual((await inspect?.()) ?? [], [], "nothing is wrong in the store's own state");
    for (const driver of drivers)
      assert.deepEqual((await driver.list({ prefix: "" }, { max: 10 })).items, [], "all was released");
  } catch (error) {
    const last = run.log.slice(-12).join("\n  ");
    throw new Error(`oracle, seed ${seed}, command ${run.log.length}: ${String(error)}\n  ${last}`, { cause: error });
  }
}

async function runCommand(run: OracleRun): Promise<void> {
  const { random } = run;
  const live = liveClaims(run);
  const chosen = live.filter(() => random.chance(0.4));
  const roll = random.next();
  if (roll < 0.45 || live.length === 0) return makeClaim(run, randomClaim(run));
  if (roll < 0.55) return makeClaim(run, pickFrom(random, run.claims));
  if (roll < 0.9)
    return release(run, chosen.length === 0 ? [pickFrom(random, live)] : chosen.slice(0, 3), random.chance(0.3));
  if (roll < 0.95 && run.settings.verbs.includes("revoke")) return revoke(run, pickFrom(random, live));
  return compareLists(run);
}

function pickFrom<T>(random: Random, items: readonly T[]): T {
  return random.pick(items as [T, ...T[]]);
}

function liveClaims(run: OracleRun): KnownClaim[] {
  return run.claims.filter(({ isGone }) => !isGone);
}

function randomClaim(run: OracleRun): KnownClaim {
  const { random, settings, drivers, nextTokens } = run;
  const { traits } = settings;
  const keys = traits.manyKeys && random.chance(0.35) ? KEYS.filter(() => random.chance(0.6)) : [];
  const specs = (keys.length === 0 ? [random.pick(KEYS)] : keys).map((key) => randomSpec(random, traits.permits, key));
  const highest = specs.map(({ key }) => nextTokens.get(key) ?? 0n).reduce(higherOf);
  const recall = traits.recall !== false && run.claims.length % 2 === 0;
  const claim: Claim = {
    id: randomId(),
    locks: specs as unknown as Claim["locks"],
    ttlMs: traits.lease.claim ? LEASE_MS : "session",
    tokenCount: specs.every(({ permits }) => permits === ALL_PERMITS) && random.chance(0.5) ? 1 + random.int(64) : 1,
    floor: randomFloor(run, highest),
    wait: random.chance(0.75),
    label: "oracle",
    recall,
    successors: !recall && specs.length === 1 && specs[0]?.permits === ALL_PERMITS && random.chance(0.5),
  };
  return { claim, driver: random.pick(drivers), hasTombstone: false, isGone: false, isRevoked: false, token: null };
}

function randomFloor({ random, claims, followsClock, sentAt }: OracleRun, highest: bigint): bigint {
  if (random.chance(0.3)) return highest;
  if (!followsClock || claims.length % 8 !== 5) return 0n;
  return sentAt + (claims.length % 16 === 5 ? FLOOR_LEAD_MICROS : REFUSED_LEAD_MICROS);
}

function randomSpec(random: Random, permits: ConformanceSettings["traits"]["permits"], key: string): LockSpec {
  const exclusive = { key, permits: ALL_PERMITS, limit: ALL_PERMITS };
  if (permits === "one" || random.chance(0.3)) return exclusive;
  if (permits === "shared" || random.chance(0.3)) return { key, permits: 1, limit: ALL_PERMITS };
  const limit = 1 + random.int(4);
  return { key, permits: 1 + random.int(limit), limit };
}

/** Makes a new claim, or claims again: one that may be live, have a tombstone, or be gone. */
async function makeClaim(run: OracleRun, knownClaim: KnownClaim): Promise<void> {
  const { claim } = knownClaim;
  // without a tombstone, driver and table may differ about a gone id; no client claims one again
  if (knownClaim.isGone && !knownClaim.hasTombstone) return;
  if (!run.claims.includes(knownClaim)) run.claims.push(knownClaim);
  const wanted = claim.locks
    .map(({ key, permits, limit }) => `${key}:${formatPermits(permits)}/${formatPermits(limit)}`)
    .join("+");
  const name = formatClaim(run, knownClaim);
  if (!run.table.acceptsFloor(claim, claim.floor, currentTime().micros)) return refuse(run, knownClaim, wanted);
  const expected = run.table.claim(claim, { owner: null }, currentTime());
  const answer = await knownClaim.driver.claim(claim);
  run.log.push(`claim ${name} ${wanted}${claim.wait ? "" : " wait: false"} → ${answer.state}`);
  run.highestFloor = higherOf(run.highestFloor, claim.floor);
  compareAnswer(run, knownClaim, expected, answer, "claim");
}

/** The claim waits: one that does not may also be answered "none" where the key is not free. */
async function refuse(run: OracleRun, knownClaim: KnownClaim, wanted: string): Promise<void> {
  const { claim, driver } = knownClaim;
  const name = formatClaim(run, knownClaim);
  run.log.push(`claim ${name} ${wanted} with a floor two days ahead`);
  await assert.rejects(() => driver.claim({ ...claim, wait: true }), isRefusal, `claim ${name}: its floor is refused`);
  knownClaim.isGone = true;
}

async function release(run: OracleRun, released: readonly KnownClaim[], hasUnansweredClaim: boolean): Promise<void> {
  const { driver } = released[0] as KnownClaim;
  const own = released.filter((knownClaim) => knownClaim.driver === driver);
  const expected = own.map(({ claim }) =>
    run.table.release(claim.id, currentTime(), hasUnansweredClaim ? claim.ttlMs : undefined),
  );
  const answers = await driver.release(own.map(({ claim }) => ({ claim, hasUnansweredClaim })));
  run.isBatch = own.length > 1;
  run.log.push(
    `release ${own.map((knownClaim) => formatClaim(run, knownClaim)).join(" ")}${hasUnansweredClaim ? " unanswered" : ""}`,
  );
  for (const [index, knownClaim] of own.entries()) {
    if (!knownClaim.isRevoked)
      assert.equal(answers[index], expected[index], `release of ${formatClaim(run, knownClaim)}`);
    knownClaim.isGone = true;
    knownClaim.hasTombstone = hasUnansweredClaim;
  }
}

async function revoke(run: OracleRun, knownClaim: KnownClaim): Promise<void> {
  const { claim, driver, token } = knownClaim;
  const entry = run.table.records.get(claim.id);
  if (token === null || entry === undefined) return;
  const now = run.random.chance(0.5);
  const { key } = claim.locks[0];
  const expected = run.table.revoke(key, entry.token, now, currentTime());
  run.log.push(`revoke ${formatClaim(run, knownClaim)}${now ? " now" : ""}`);
  assert.deepEqual(
    await driver.revoke?.([{ key, token, now }]),
    [expected],
    `revoke of ${formatClaim(run, knownClaim)}`,
  );
  knownClaim.isRevoked = true;
  knownClaim.isGone ||= now && expected;
}

/** Asserts that every live claim has the table's answer. Each client renews its claims in one batch. */
async function compareStates(run: OracleRun): Promise<void> {
  const compared: { knownClaim: KnownClaim; expected: Answer; answer: Answer }[] = [];
  for (const driver of run.drivers) {
    const own = liveClaims(run).filter((knownClaim) => knownClaim.driver === driver);
    if (own.length === 0) continue;
    const answers = await driver.renew(own.map(({ claim }) => claim));
    assert.equal(answers.length, own.length, "renew gives one answer for each claim");
    for (const [index, knownClaim] of own.entries()) {
      const expected = run.table.renew(knownClaim.claim.id, null, currentTime());
      compared.push({ knownClaim, expected, answer: answers[index] as Answer });
    }
  }
  // in the table's order of grants, which the driver must have followed
  const order = run.isBatch ? "answer" : "expected";
  compared.sort((left, right) => toComparableToken(left[order]) - toComparableToken(right[order]));
  run.isBatch = false;
  for (const { knownClaim, expected, answer } of compared) compareAnswer(run, knownClaim, expected, answer, "renew");
}

function toComparableToken(answer: Answer): number {
  return answer.state === "held" ? Number(answer.token) : 0;
}

function compareAnswer(run: OracleRun, knownClaim: KnownClaim, expected: Answer, answer: Answer, verb: string): void {
  const name = formatClaim(run, knownClaim);
  assert.equal(answer.state, expected.state, `${verb} of ${name}: the table says ${expected.state}`);
  if (answer.state === "none") {
    // a revoked claim may keep its entry until it is released
    knownClaim.isGone ||= !knownClaim.isRevoked;
    return;
  }
  if (answer.state === "waiting") {
    assert.ok(answer.recheckMs > 0 && answer.remainingMs > 0, `${verb} of ${name}: times above 0`);
    return;
  }
  if (knownClaim.token === null) recordGrant(run, knownClaim, answer);
  // a store may take a claim for wanted for longer than it is
  if (run.settings.traits.recall !== false && expected.state === "held" && expected.recalled === true)
    assert.equal(answer.recalled, true, `${verb} of ${name}: another claim waits for it`);
  if (run.settings.traits.fencing) assert.equal(answer.token, knownClaim.token, `${verb} of ${name}: the token stays`);
}

function recordGrant(
  run: OracleRun,
  knownClaim: KnownClaim,
  { token, tokenCount }: Extract<Answer, { state: "held" }>,
): void {
  const { claim } = knownClaim;
  knownClaim.token = token;
  assert.ok(
    // the driver may name successors, with a token for each
    tokenCount >= 1 && (tokenCount <= claim.tokenCount || claim.successors === true),
    `${formatClaim(run, knownClaim)}: ${tokenCount} tokens of ${claim.tokenCount}`,
  );
  if (!run.settings.traits.fencing) return;
  // of a key without a grant in this run the last token is not known: the store may have it from before
  const isLastKnown = claim.locks.every(({ key }) => run.nextTokens.has(key));
  assert.ok(token >= claim.floor, `${formatClaim(run, knownClaim)}: its token is not below its floor`);
  for (const { key } of claim.locks) {
    assert.ok(
      token >= (run.nextTokens.get(key) ?? 0n),
      `${formatClaim(run, knownClaim)}: its token is above all earlier ones on "${key}"`,
    );
    run.nextTokens.set(key, token + BigInt(tokenCount));
  }
  if (run.highestToken === 0n) run.followsClock = claim.floor === 0n && token >= run.sentAt;
  if (run.followsClock && isLastKnown) {
    const unused = MAX_UNUSED_NUMBERS * BigInt(run.log.length + 1);
    const bounds = [
      run.sentAt,
      [run.highestToken, run.highestFloor, readMicros() + 999n].reduce(higherOf) + unused,
    ] as const;
    assert.ok(
      token >= bounds[0] && token <= bounds[1],
      `${formatClaim(run, knownClaim)}: its token ${token} is the lowest above the clock, its floor and all earlier ones: within ${bounds}`,
    );
  }
  run.highestToken = higherOf(run.highestToken, token + BigInt(tokenCount) - 1n);
}

function higherOf(left: bigint, right: bigint): bigint {
  return left > right ? left : right;
}

function readMicros(): bigint {
  return BigInt(Date.now()) * 1_000n;
}

/** Asserts that the driver lists the table's claims, and those of a queue in its order. */
async function compareLists(run: OracleRun): Promise<void> {
  run.log.push("list");
  const views = (await run.random.pick(run.drivers).list({ prefix: "" }, { max: 1_000 })).items;
  const tags = views.map(({ tag }) => tag);
  const expected = [...run.table.records.keys()].map(publicTag);
  assert.deepEqual([...tags].sort(), [...expected].sort(), "the same claims are listed");
  for (const key of KEYS) {
    const queue = [...(run.table.queues.get(key)?.entries ?? [])].map(({ record }) => publicTag(record.claim.id));
    const listed = (await run.random.pick(run.drivers).list({ prefix: key }, { max: 1_000 })).items.map(
      ({ tag }) => tag,
    );
    assert.deepEqual(
      listed.filter((tag) => queue.includes(tag)),
      queue,
      `the queue of "${key}" is listed from its front`,
    );
  }
}

function formatClaim(run: OracleRun, knownClaim: KnownClaim): string {
  return `#${run.claims.indexOf(knownClaim) + 1}`;
}

function formatPermits(permits: number): string {
  return permits === ALL_PERMITS ? "all" : String(permits);
}

function currentTime(): Timestamps {
  return { now: performance.now(), micros: Date.now() * 1_000 };
}
