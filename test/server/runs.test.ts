// Runs that outlive their wrappers, their server, or both: what they hold stays, and nothing else waits for it.

import { expect, test } from "vitest";
import type { LivingRuns, Run, RunLife, Runs } from "../../src/server/run-life.ts";
import type { Answer, Claim, Hold } from "../../src/spi/driver.ts";
import { leakCheck } from "../support/leak-check.ts";
import { claimOf, cleanUp, held } from "./support.ts";
import type { Player } from "./world.ts";
import { turns, World } from "./world.ts";

leakCheck();
cleanUp();

const MINUTE_MS = 60_000;

/** Runs as the kernel would tell of them, one for each session. */
class FakeRuns implements Runs {
  readonly all = new Map<
    string,
    { life: RunLife; claims: readonly (readonly [Claim, bigint])[]; holdUntil?: number }
  >();
  readonly #now: () => number;
  unreadable = false;
  readonly removed: string[] = [];

  constructor(now: () => number) {
    this.#now = now;
  }

  find(session: string): Run | null {
    const entry = this.all.get(session);
    if (entry === undefined) return null;
    const claims = entry.claims.map(([claim, token]) => ({ claim, run: token, token, prefix: "" }));
    return {
      session,
      label: "a run",
      wrapper: { pid: null, pidStart: null },
      claims,
      leftMs: () => Math.max((entry.holdUntil ?? 0) - this.#now(), 0),
      look: () => ({ life: this.all.get(session)?.life ?? "unnamed", againMs: 100 }),
      remove: () => {
        this.removed.push(session);
        this.all.delete(session);
      },
    };
  }
  async living(): Promise<LivingRuns> {
    const runs = [...this.all]
      .filter(([, { life, holdUntil }]) => life !== "over" || (holdUntil ?? 0) > this.#now())
      .map(([session]) => this.find(session) as Run);
    return { runs, unreadable: this.unreadable };
  }
}

type Playing = {
  readonly world: World;
  readonly runs: FakeRuns;
  readonly wrapper: Player;
  readonly claim: Claim;
  readonly token: bigint;
  /** What becomes of the run. */
  is(life: RunLife): void;
  /** The wrapper is gone from one moment to the next. */
  die(): void;
};

const sessionOf = ({ driver }: Player): string => (driver as unknown as { readonly session: string }).session;

async function playing(more: Partial<Claim> = {}, keys: Parameters<typeof claimOf>[0] = "k"): Promise<Playing> {
  const world = new World();
  const runs = new FakeRuns(() => world.clock.now());
  world.runs = runs;
  await world.start();
  const wrapper = await world.client();
  const claim = claimOf(keys, { ttlMs: "session", ...more });
  const { token } = held(await wrapper.driver.claim(claim));
  runs.all.set(sessionOf(wrapper), { life: "works", claims: [[claim, token]] });
  return {
    world,
    runs,
    wrapper,
    claim,
    token,
    is(life) {
      const entry = runs.all.get(sessionOf(wrapper));
      if (entry !== undefined) entry.life = life;
    },
    die() {
      wrapper.process = "gone";
      wrapper.unreachable = true;
      wrapper.cut();
    },
  };
}

const restart = async (world: World, how: "crash" | "stop" = "crash"): Promise<void> => {
  if (how === "crash") world.crash();
  else await world.stop();
  await world.start();
};

async function asks(world: World, key: string | readonly Hold[] = "k"): Promise<Answer> {
  const next = await world.client();
  return next.driver.claim(claimOf(key, { wait: false }));
}

test.for(["crash", "stop"] as const)(
  "wrapper dead, server restarted (%s): what the run holds stays until it is over, and no other key waits",
  async (how) => {
    const { world, is, die, token } = await playing();
    die();
    await restart(world, how);
    expect(world.kept?.keeper.reclaimMs()).toBe(0);
    expect(await asks(world, "other")).toMatchObject({ state: "held" });
    await world.clock.pass(10 * MINUTE_MS);
    expect(await asks(world)).toEqual({ state: "none" });
    is("over");
    await world.clock.pass(200);
    expect(held(await asks(world)).token).toBeGreaterThan(token);
  },
);

test("wrapper stopped while its server crashes: its claim stays for as long as it lives, and is the same when it comes back", async () => {
  const { world, wrapper, is, claim, token, runs } = await playing();
  is("held");
  wrapper.process = "stopped";
  wrapper.unreachable = true;
  await restart(world);
  await world.clock.pass(10 * MINUTE_MS);
  expect(await asks(world)).toEqual({ state: "none" });
  wrapper.process = "running";
  wrapper.unreachable = false;
  await world.clock.pass(5_000);
  expect((await wrapper.driver.renew([claim]))[0]).toMatchObject({ state: "held", token });
  expect(world.kept?.keeper.table.entries.size).toBe(1);
  runs.all.delete(sessionOf(wrapper));
  expect(await wrapper.driver.release([claim])).toEqual([true]);
  expect(await asks(world)).toMatchObject({ state: "held" });
});

test("the server crashes again and again while a run works: it keeps what it holds, with its token", async () => {
  const { world, is, die, token } = await playing();
  die();
  for (let times = 0; times < 5; times++) {
    await restart(world, times % 2 === 0 ? "crash" : "stop");
    await world.clock.pass(3_000);
    expect(await asks(world)).toEqual({ state: "none" });
    expect(world.kept?.keeper.table.entries.size).toBe(1);
  }
  // those who asked meanwhile are programs, which a start waits for
  await world.clock.pass(MINUTE_MS);
  expect(await asks(world)).toEqual({ state: "none" });
  is("over");
  await world.clock.pass(200);
  expect(held(await asks(world)).token).toBeGreaterThan(token);
});

test("the server lives on: wrapper dead, the run keeps its claim until it is over, and gives up a place in a line", async () => {
  const { world, wrapper, runs, is, die } = await playing();
  const other = await world.client();
  await other.driver.claim(claimOf("line"));
  await wrapper.driver.claim(claimOf("line"));
  die();
  await turns();
  expect(world.kept?.keeper.table.entries.size).toBe(2);
  await world.clock.pass(10 * MINUTE_MS);
  expect(await asks(world)).toEqual({ state: "none" });
  is("over");
  await world.clock.pass(200);
  expect(await asks(world)).toMatchObject({ state: "held" });
  expect(runs.removed).toEqual([sessionOf(wrapper)]);
});

test("a file that is gone is a run that has ended: the end of the connection counts", async () => {
  const { world, runs, die } = await playing();
  runs.all.clear();
  die();
  await turns();
  expect(await asks(world)).toMatchObject({ state: "held" });
});

test.for(["crash", "none"] as const)(
  "a lease of a run that works is renewed for it (%s); that of a wrapper that is only stopped is not",
  async (how) => {
    const { world, is, die } = await playing({ ttlMs: 5_000 });
    die();
    if (how === "crash") await restart(world);
    await world.clock.pass(5 * MINUTE_MS);
    expect(await asks(world)).toEqual({ state: "none" });
    is("held");
    await world.clock.pass(6_000);
    expect(await asks(world)).toMatchObject({ state: "held" });
  },
);

test.for(["crash", "stop"] as const)(
  "a run that was ended when its wrapper was stopped (%s): its lease ends, and no key waits for the wrapper",
  async (how) => {
    const { world, runs, wrapper, is } = await playing({ ttlMs: 5_000 });
    wrapper.process = "stopped";
    wrapper.blackHole = true;
    await world.clock.pass(5_001);
    const next = await world.client();
    const claim = claimOf("k", { ttlMs: 1_000 });
    const { token } = held(await next.driver.claim(claim));
    await next.driver.release([claim]);
    next.process = "gone";
    next.cut();
    const entry = runs.all.get(sessionOf(wrapper));
    if (entry !== undefined) entry.claims = [];
    is("held");
    wrapper.unreachable = true;
    await restart(world, how);
    await world.clock.pass(1_000);
    expect(world.kept?.keeper.reclaimMs()).toBe(0);
    expect(held(await asks(world)).token).toBeGreaterThan(token);
    expect(runs.removed).toEqual([]);
    is("over");
    await world.clock.pass(200);
    expect(runs.removed).toEqual([sessionOf(wrapper)]);
  },
);

test.for(["run", "program"] as const)(
  "the server crashes while a %s holds the key of a run whose lease had ended, and which works on: the newer token stays",
  async (kind) => {
    const { world, runs, wrapper } = await playing({ ttlMs: 5_000 });
    wrapper.process = "stopped";
    wrapper.blackHole = true;
    await world.clock.pass(5_001);
    const other = await world.client();
    const claim = claimOf("k", { ttlMs: "session" });
    const { token } = held(await other.driver.claim(claim));
    if (kind === "run") runs.all.set(sessionOf(other), { life: "works", claims: [[claim, token]] });
    wrapper.unreachable = true;
    await restart(world);
    await world.clock.pass(2_000);
    expect((await other.driver.renew([claim]))[0]).toMatchObject({ state: "held", token });
    expect([...(world.kept?.keeper.table.entries.values() ?? [])].map((entry) => entry.token)).toEqual([Number(token)]);
  },
);

test.for(["before", "after", "when it is left", "never"] as const)(
  "--hold-at-least, wrapper and command killed, the server crashes %s: the key stays held for what is left, no longer",
  async (when) => {
    const { world, runs, wrapper, is, die, token } = await playing({ ttlMs: 60_000 });
    const entry = runs.all.get(sessionOf(wrapper));
    if (entry !== undefined) entry.holdUntil = world.clock.now() + 40_000;
    await world.clock.pass(10_000);
    if (when === "before") world.crash();
    const goOn = when === "when it is left" ? world.disk?.hang() : undefined;
    is("over");
    die();
    if (when === "before") await world.start();
    await world.clock.pass(1_000);
    expect(runs.removed).toEqual(goOn === undefined ? [sessionOf(wrapper)] : []);
    if (when === "after" || when === "when it is left") world.crash();
    goOn?.();
    if (when === "after" || when === "when it is left") await world.start();
    await world.clock.pass(1_000);
    expect(runs.removed).toEqual([sessionOf(wrapper)]);
    // of a claim that came back from the journal it is not known how much has passed
    const longest = when === "after" ? 61_000 : 29_000;
    await world.clock.pass(27_000);
    expect(await asks(world)).toEqual({ state: "none" });
    await world.clock.pass(longest - 27_000);
    expect(held(await asks(world)).token).toBeGreaterThan(token);
  },
);

test("--hold-at-least, wrapper and command killed when the time is over: the lease ends with them", async () => {
  const { world, runs, wrapper, is, die } = await playing({ ttlMs: 60_000 });
  const entry = runs.all.get(sessionOf(wrapper));
  if (entry !== undefined) entry.holdUntil = world.clock.now() + 1_000;
  await world.clock.pass(1_000);
  is("over");
  die();
  await world.clock.pass(200);
  expect(await asks(world)).toMatchObject({ state: "held" });
  expect(runs.removed).toEqual([sessionOf(wrapper)]);
});

test("a run of which nothing can be told is waited for 60 s", async () => {
  const { world, is, die } = await playing();
  is("unknown");
  die();
  await restart(world);
  await world.clock.pass(MINUTE_MS - 1_000);
  expect(await asks(world)).toEqual({ state: "none" });
  await world.clock.pass(2_000);
  expect(await asks(world)).toMatchObject({ state: "held" });
});

test("a run that began while no server was there, its wrapper dead before it came back: found when its session is looked at", async () => {
  const { world, runs, wrapper, die } = await playing();
  const entry = runs.all.get(sessionOf(wrapper));
  runs.all.clear();
  wrapper.unreachable = true;
  await restart(world);
  await world.clock.pass(2_000);
  if (entry !== undefined) runs.all.set(sessionOf(wrapper), entry);
  die();
  await world.clock.pass(10 * MINUTE_MS);
  expect(await asks(world)).toEqual({ state: "none" });
  expect(world.kept?.keeper.reclaimMs()).toBe(0);
});

test.for(["crash", "stop"] as const)(
  "a damaged file: after a %s nothing new is granted for 60 s, then it is",
  async (how) => {
    const { world, runs, die } = await playing();
    runs.all.clear();
    runs.unreadable = true;
    die();
    await restart(world, how);
    expect(world.kept?.keeper.reclaimMs()).toBe(MINUTE_MS);
    expect((await asks(world, "other")).state).not.toBe("held");
    await world.clock.pass(MINUTE_MS);
    expect(await asks(world, "other")).toMatchObject({ state: "held" });
  },
);

test.for(["crash", "stop"] as const)(
  "permits and several keys come back as they were (%s): what is left of them is granted, no more",
  async (how) => {
    const of3 = (permits: number): Hold => ({ key: "p", permits, limit: 3 });
    const { world, is, die } = await playing({}, ["a", of3(2)]);
    die();
    await restart(world, how);
    expect(await asks(world, "a")).toEqual({ state: "none" });
    expect(await asks(world, [of3(2)])).toEqual({ state: "none" });
    expect(await asks(world, [of3(1)])).toMatchObject({ state: "held" });
    is("over");
    await world.clock.pass(200);
    expect(await asks(world, "a")).toMatchObject({ state: "held" });
  },
);

test("a claim that was taken back from a run stays revoked over a clean restart", async () => {
  const { world, die, token } = await playing();
  const operator = await world.client();
  await operator.driver.revoke?.([{ key: "k", token, now: false }]);
  die();
  await restart(world, "stop");
  expect([...(world.kept?.keeper.table.entries.values() ?? [])].map(({ revoked }) => revoked)).toEqual(["revoked"]);
  expect(await asks(world)).toEqual({ state: "none" });
});

test("a program of the library that is stopped keeps its bound of 60 s", async () => {
  const { world, runs, wrapper } = await playing();
  runs.all.clear();
  wrapper.process = "stopped";
  wrapper.unreachable = true;
  await restart(world);
  expect((await asks(world)).state).not.toBe("held");
  await world.clock.pass(MINUTE_MS + 1_000);
  expect(await asks(world)).toMatchObject({ state: "held" });
});
