/**
 * The oracle: random commands go to a driver and to core/table, and both must answer alike. Leases are long and every
 * release is a command, so no answer depends on time. Tokens are compared by order, not by value.
 */

import assert from "node:assert/strict";
import { Table } from "../core/table.ts";
import { newId, tagOf } from "../ids.ts";
import type { Answer, Claim, Driver, Hold } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import type { Random } from "./random.ts";
import { randomOf } from "./random.ts";
import type { Subject } from "./subject.ts";

const KEYS = ["a", "b", "c"] as const;
const LEASE_MS = 3_600_000;

/** A claim that was placed at least once, and the client that placed it. */
interface Known {
  readonly claim: Claim;
  readonly driver: Driver;
  /** Given up with a claim call unanswered: must answer none from now on. */
  buried: boolean;
  gone: boolean;
  revoked: boolean;
  token: bigint | null;
}

/** How an oracle's run goes. */
export interface OracleOptions {
  readonly seed: number;
  /** How many commands. */
  readonly steps: number;
  /** What is wrong in the store's own state (see Store.inspect): asked after each command, and must give nothing. */
  readonly inspect?: (() => Promise<readonly string[]>) | undefined;
}

interface Run {
  readonly subject: Pick<Subject, "traits" | "verbs">;
  readonly random: Random;
  readonly drivers: readonly [Driver, ...Driver[]];
  readonly table: Table;
  readonly known: Known[];
  /** Behind the last token granted on each key, by the driver. */
  readonly free: Map<string, bigint>;
  /** What was done, for the message of a failure. */
  readonly done: string[];
  /** The last command released several claims: in which order others are granted then is the driver's. */
  isBatch: boolean;
}

/**
 * Runs random commands on one or more opened drivers of one empty store. Leaves the store empty.
 * @throws Error naming the seed, the last commands and what differed
 */
export async function oracle(
  drivers: readonly [Driver, ...Driver[]],
  subject: Pick<Subject, "traits" | "verbs">,
  { seed, steps, inspect }: OracleOptions,
): Promise<void> {
  const run: Run = {
    subject,
    random: randomOf(seed),
    drivers,
    table: new Table(),
    known: [],
    free: new Map(),
    done: [],
    isBatch: false,
  };
  try {
    for (let step = 0; step < steps; step++) {
      await command(run);
      await sameStanding(run);
      assert.deepEqual((await inspect?.()) ?? [], [], "nothing is wrong in the store's own state");
    }
    for (const known of alive(run)) await release(run, [known], false);
    await sameStanding(run);
    assert.deepEqual((await inspect?.()) ?? [], [], "nothing is wrong in the store's own state");
    for (const driver of drivers) assert.deepEqual(await driver.list({ prefix: "" }, 10), [], "all was released");
  } catch (error) {
    const last = run.done.slice(-12).join("\n  ");
    throw new Error(`oracle, seed ${seed}, command ${run.done.length}: ${String(error)}\n  ${last}`, { cause: error });
  }
}

async function command(run: Run): Promise<void> {
  const { random } = run;
  const living = alive(run);
  const some = living.filter(() => random.chance(0.4));
  const roll = random.next();
  if (roll < 0.45 || living.length === 0) return place(run, newClaim(run));
  if (roll < 0.55) return place(run, one(random, run.known));
  if (roll < 0.9) return release(run, some.length === 0 ? [one(random, living)] : some.slice(0, 3), random.chance(0.3));
  if (roll < 0.95 && run.subject.verbs.includes("revoke")) return revoke(run, one(random, living));
  return sameLists(run);
}

function one<T>(random: Random, items: readonly T[]): T {
  return random.pick(items as [T, ...T[]]);
}

function alive(run: Run): Known[] {
  return run.known.filter(({ gone }) => !gone);
}

function newClaim(run: Run): Known {
  const { random, subject, drivers, free } = run;
  const { traits } = subject;
  const keys = traits.manyKeys && random.chance(0.35) ? KEYS.filter(() => random.chance(0.6)) : [];
  const holds = (keys.length === 0 ? [random.pick(KEYS)] : keys).map((key) => holdOf(random, traits.permits, key));
  const highest = holds.reduce((most, { key }) => ((free.get(key) ?? 0n) > most ? (free.get(key) ?? 0n) : most), 0n);
  const claim: Claim = {
    id: newId(),
    holds: holds as unknown as Claim["holds"],
    ttlMs: traits.lease.claim ? LEASE_MS : "session",
    tokens: holds.every(({ permits }) => permits === ALL_PERMITS) && random.chance(0.5) ? 1 + random.int(64) : 1,
    floor: random.chance(0.3) ? highest : 0n,
    wait: random.chance(0.75),
    label: "oracle",
  };
  return { claim, driver: random.pick(drivers), buried: false, gone: false, revoked: false, token: null };
}

function holdOf(random: Random, permits: Subject["traits"]["permits"], key: string): Hold {
  const exclusive = { key, permits: ALL_PERMITS, limit: ALL_PERMITS };
  if (permits === "one" || random.chance(0.3)) return exclusive;
  if (permits === "shared" || random.chance(0.3)) return { key, permits: 1, limit: ALL_PERMITS };
  const limit = 1 + random.int(4);
  return { key, permits: 1 + random.int(limit), limit };
}

/** Claims a new one, or again one that may be alive, buried, or gone. */
async function place(run: Run, known: Known): Promise<void> {
  const { claim } = known;
  // an id that is gone and not buried may be placed again by either; no core does that
  if (known.gone && !known.buried) return;
  if (!run.known.includes(known)) run.known.push(known);
  const wanted = claim.holds.map(({ key, permits, limit }) => `${key}:${shown(permits)}/${shown(limit)}`).join("+");
  const name = nameOf(run, known);
  const expected = run.table.claim(claim, null, ...time());
  const answer = await known.driver.claim(claim);
  run.done.push(`claim ${name} ${wanted}${claim.wait ? "" : " wait: false"} → ${answer.state}`);
  compare(run, known, expected, answer, "claim");
}

async function release(run: Run, gone: readonly Known[], unanswered: boolean): Promise<void> {
  const { driver } = gone[0] as Known;
  const own = gone.filter((known) => known.driver === driver);
  const expected = own.map(({ claim }) => run.table.release(claim.id, ...time(), unanswered ? claim.ttlMs : undefined));
  const ids = new Set(own.map(({ claim }) => claim.id));
  const answers = await (unanswered
    ? driver.release(
        own.map(({ claim }) => claim),
        ids,
      )
    : driver.release(own.map(({ claim }) => claim)));
  run.isBatch = own.length > 1;
  run.done.push(`release ${own.map((known) => nameOf(run, known)).join(" ")}${unanswered ? " unanswered" : ""}`);
  for (const [index, known] of own.entries()) {
    if (!known.revoked) assert.equal(answers[index], expected[index], `release of ${nameOf(run, known)}`);
    known.gone = true;
    known.buried = unanswered;
  }
}

async function revoke(run: Run, known: Known): Promise<void> {
  const { claim, driver, token } = known;
  const entry = run.table.entries.get(claim.id);
  if (token === null || entry === undefined) return;
  const now = run.random.chance(0.5);
  const { key } = claim.holds[0];
  const expected = run.table.revoke(key, entry.token, now, ...time());
  run.done.push(`revoke ${nameOf(run, known)}${now ? " now" : ""}`);
  assert.deepEqual(await driver.revoke?.([{ key, token, now }]), [expected], `revoke of ${nameOf(run, known)}`);
  known.revoked = true;
  known.gone ||= now && expected;
}

/** Every live claim stands where the table says, each asked about through its own client, in one batch. */
async function sameStanding(run: Run): Promise<void> {
  const seen: { known: Known; expected: Answer; answer: Answer }[] = [];
  for (const driver of run.drivers) {
    const own = alive(run).filter((known) => known.driver === driver);
    if (own.length === 0) continue;
    const answers = await driver.renew(own.map(({ claim }) => claim));
    assert.equal(answers.length, own.length, "renew gives one answer for each claim");
    for (const [index, known] of own.entries()) {
      const expected = run.table.renew(known.claim.id, null, ...time());
      seen.push({ known, expected, answer: answers[index] as Answer });
    }
  }
  // in the table's order of grants: the driver must have granted in the same
  const order = run.isBatch ? "answer" : "expected";
  seen.sort((left, right) => tokenOf(left[order]) - tokenOf(right[order]));
  run.isBatch = false;
  for (const { known, expected, answer } of seen) compare(run, known, expected, answer, "renew");
}

function tokenOf(answer: Answer): number {
  return answer.state === "held" ? Number(answer.token) : 0;
}

function compare(run: Run, known: Known, expected: Answer, answer: Answer, verb: string): void {
  const name = nameOf(run, known);
  assert.equal(answer.state, expected.state, `${verb} of ${name}: the table says ${expected.state}`);
  if (answer.state === "none") {
    // a revoked claim may still keep a place until it is released
    known.gone ||= !known.revoked;
    return;
  }
  if (answer.state === "waiting") {
    assert.ok(answer.recheckMs > 0 && answer.ttlMs > 0, `${verb} of ${name}: times above 0`);
    return;
  }
  if (known.token === null) granted(run, known, answer);
  if (run.subject.traits.fencing) assert.equal(answer.token, known.token, `${verb} of ${name}: the token stays`);
}

function granted(run: Run, known: Known, { token, tokens }: Extract<Answer, { state: "held" }>): void {
  const { claim } = known;
  known.token = token;
  assert.ok(tokens >= 1 && tokens <= claim.tokens, `${nameOf(run, known)}: ${tokens} tokens of ${claim.tokens}`);
  if (!run.subject.traits.fencing) return;
  assert.ok(token >= claim.floor, `${nameOf(run, known)}: its token is not below its floor`);
  for (const { key } of claim.holds) {
    assert.ok(token >= (run.free.get(key) ?? 0n), `${nameOf(run, known)}: its token lies above all before on "${key}"`);
    run.free.set(key, token + BigInt(tokens));
  }
}

/** The same claims are listed, and those in one line in the same order. */
async function sameLists(run: Run): Promise<void> {
  run.done.push("list");
  const views = await run.random.pick(run.drivers).list({ prefix: "" }, 1_000);
  const tags = views.map(({ tag }) => tag);
  const expected = [...run.table.entries.keys()].map(tagOf);
  assert.deepEqual([...tags].sort(), [...expected].sort(), "the same claims are listed");
  for (const key of KEYS) {
    const line = [...(run.table.mint.lines.get(key)?.seats ?? [])].map(({ entry }) => tagOf(entry.claim.id));
    const listed = (await run.random.pick(run.drivers).list({ prefix: key }, 1_000)).map(({ tag }) => tag);
    assert.deepEqual(
      listed.filter((tag) => line.includes(tag)),
      line,
      `the line of "${key}" is listed from its front`,
    );
  }
}

function nameOf(run: Run, known: Known): string {
  return `#${run.known.indexOf(known) + 1}`;
}

function shown(permits: number): string {
  return permits === ALL_PERMITS ? "all" : String(permits);
}

function time(): [now: number, micros: number] {
  return [performance.now(), Date.now() * 1_000];
}
