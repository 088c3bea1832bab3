// Command runs that outlive their wrapper, their server, or both: their claims stay, and no other key waits for them.

import { expect, test } from "vitest";
import type { CommandRun, CommandRuns, LivingRuns, RunStatus } from "../../../src/server/runs/command-run.ts";
import type { Answer, Claim, LockSpec } from "../../../src/spi/driver.ts";
import { flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, expectHeld, makeClaim } from "../../support/server-fixture.ts";
import type { HarnessClient } from "../../support/server-harness.ts";
import { ServerHarness } from "../../support/server-harness.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const MINUTE_MS = 60_000;

/** Command runs as the kernel would report them, one for each session. */
class MemoryRuns implements CommandRuns {
  readonly all = new Map<
    string,
    { life: RunStatus; claims: readonly (readonly [Claim, bigint])[]; holdUntil?: number }
  >();
  readonly #now: () => number;
  unreadable = false;
  readonly removed: string[] = [];

  constructor(now: () => number) {
    this.#now = now;
  }

  find(session: string): CommandRun | null {
    const entry = this.all.get(session);
    if (entry === undefined) return null;
    const claims = entry.claims.map(([claim, token]) => ({ claim, firstToken: token, token, prefix: "" }));
    return {
      session,
      label: "a run",
      wrapper: { pid: null, pidStart: null },
      claims,
      remainingHoldMs: () => Math.max((entry.holdUntil ?? 0) - this.#now(), 0),
      probe: () => ({ status: this.all.get(session)?.life ?? "unnamed", nextProbeMs: 100 }),
      remove: () => {
        this.removed.push(session);
        this.all.delete(session);
      },
    };
  }
  async findLiving(): Promise<LivingRuns> {
    const runs = [...this.all]
      .filter(([, { life, holdUntil }]) => life !== "over" || (holdUntil ?? 0) > this.#now())
      .map(([session]) => this.find(session) as CommandRun);
    return { runs, hasUnreadable: this.unreadable };
  }
}

type RunFixture = {
  readonly world: ServerHarness;
  readonly runs: MemoryRuns;
  readonly wrapper: HarnessClient;
  readonly claim: Claim;
  readonly token: bigint;
  /** The state of the run. */
  is(life: RunStatus): void;
  /** The wrapper dies at once. */
  die(): void;
};

async function createRunFixture(
  more: Partial<Claim> = {},
  keys: Parameters<typeof makeClaim>[0] = "k",
): Promise<RunFixture> {
  const harness = new ServerHarness();
  const runs = new MemoryRuns(() => harness.clock.now());
  harness.commandRuns = runs;
  await harness.start();
  const wrapper = await harness.connectClient();
  const claim = makeClaim(keys, { ttlMs: "session", ...more });
  const { token } = expectHeld(await wrapper.driver.claim(claim));
  runs.all.set(wrapper.sessionId, { life: "works", claims: [[claim, token]] });
  return {
    world: harness,
    runs,
    wrapper,
    claim,
    token,
    is(life) {
      const entry = runs.all.get(wrapper.sessionId);
      if (entry !== undefined) entry.life = life;
    },
    die() {
      wrapper.processState = "gone";
      wrapper.isUnreachable = true;
      wrapper.disconnect();
    },
  };
}

const restartServer = async (harness: ServerHarness, how: "crash" | "stop" = "crash"): Promise<void> => {
  if (how === "crash") harness.crash();
  else await harness.stop();
  await harness.start();
};

async function openWaiter(harness: ServerHarness, key: string | readonly LockSpec[] = "k"): Promise<Answer> {
  const next = await harness.connectClient();
  return next.driver.claim(makeClaim(key, { wait: false }));
}

test.for(["crash", "stop"] as const)(
  "wrapper dead, server restarted (%s): the run's claims stay until it ends, and no other key waits",
  async (how) => {
    const { world, is, die, token } = await createRunFixture();
    die();
    await restartServer(world, how);
    expect(world.inspect().recoveryRemainingMs).toBe(0);
    expect(await openWaiter(world, "other")).toMatchObject({ state: "held" });
    await world.clock.advance(10 * MINUTE_MS);
    expect(await openWaiter(world)).toEqual({ state: "none" });
    is("over");
    await world.clock.advance(200);
    expect(expectHeld(await openWaiter(world)).token).toBeGreaterThan(token);
  },
);

test("wrapper stopped during a server crash: its claim stays while the wrapper lives, and is unchanged when it continues", async () => {
  const { world, wrapper, is, claim, token, runs } = await createRunFixture();
  is("held");
  wrapper.processState = "stopped";
  wrapper.isUnreachable = true;
  await restartServer(world);
  await world.clock.advance(10 * MINUTE_MS);
  expect(await openWaiter(world)).toEqual({ state: "none" });
  wrapper.processState = "running";
  wrapper.isUnreachable = false;
  await world.clock.advance(5_000);
  expect((await wrapper.driver.renew([claim]))[0]).toMatchObject({ state: "held", token });
  expect(world.inspect().records.size).toBe(1);
  runs.all.delete(wrapper.sessionId);
  expect(await wrapper.driver.release(toReleases(claim))).toEqual([true]);
  expect(await openWaiter(world)).toMatchObject({ state: "held" });
});

test("a run keeps its claims and token while the server crashes again and again", async () => {
  const { world, is, die, token } = await createRunFixture();
  die();
  for (let times = 0; times < 5; times++) {
    await restartServer(world, times % 2 === 0 ? "crash" : "stop");
    await world.clock.advance(3_000);
    expect(await openWaiter(world)).toEqual({ state: "none" });
    expect(world.inspect().records.size).toBe(1);
  }
  // the clients that asked meanwhile are processes that a start waits for
  await world.clock.advance(MINUTE_MS);
  expect(await openWaiter(world)).toEqual({ state: "none" });
  is("over");
  await world.clock.advance(200);
  expect(expectHeld(await openWaiter(world)).token).toBeGreaterThan(token);
});

test("wrapper dead, server running: the run keeps its claim until it ends, and loses its queue entry", async () => {
  const { world, wrapper, runs, is, die } = await createRunFixture();
  const otherClient = await world.connectClient();
  await otherClient.driver.claim(makeClaim("line"));
  await wrapper.driver.claim(makeClaim("line"));
  die();
  await flushEventLoop();
  expect(world.inspect().records.size).toBe(2);
  await world.clock.advance(10 * MINUTE_MS);
  expect(await openWaiter(world)).toEqual({ state: "none" });
  is("over");
  await world.clock.advance(200);
  expect(await openWaiter(world)).toMatchObject({ state: "held" });
  expect(runs.removed).toEqual([wrapper.sessionId]);
});

test("a run whose file is gone has ended: the end of the connection counts", async () => {
  const { world, runs, die } = await createRunFixture();
  runs.all.clear();
  die();
  await flushEventLoop();
  expect(await openWaiter(world)).toMatchObject({ state: "held" });
});

test.for(["crash", "none"] as const)(
  "the lease of an active run is renewed for it (%s); the lease of a run whose wrapper is only stopped is not",
  async (how) => {
    const { world, is, die } = await createRunFixture({ ttlMs: 5_000 });
    die();
    if (how === "crash") await restartServer(world);
    await world.clock.advance(5 * MINUTE_MS);
    expect(await openWaiter(world)).toEqual({ state: "none" });
    is("held");
    await world.clock.advance(6_000);
    expect(await openWaiter(world)).toMatchObject({ state: "held" });
  },
);

test.for(["crash", "stop"] as const)(
  "a run that was ended while its wrapper was stopped (%s): its lease ends, and no key waits for the wrapper",
  async (how) => {
    const { world, runs, wrapper, is } = await createRunFixture({ ttlMs: 5_000 });
    wrapper.processState = "stopped";
    wrapper.dropsTraffic = true;
    await world.clock.advance(5_001);
    const next = await world.connectClient();
    const claim = makeClaim("k", { ttlMs: 1_000 });
    const { token } = expectHeld(await next.driver.claim(claim));
    await next.driver.release(toReleases(claim));
    next.processState = "gone";
    next.disconnect();
    const entry = runs.all.get(wrapper.sessionId);
    if (entry !== undefined) entry.claims = [];
    is("held");
    wrapper.isUnreachable = true;
    await restartServer(world, how);
    await world.clock.advance(1_000);
    expect(world.inspect().recoveryRemainingMs).toBe(0);
    expect(expectHeld(await openWaiter(world)).token).toBeGreaterThan(token);
    expect(runs.removed).toEqual([]);
    is("over");
    await world.clock.advance(200);
    expect(runs.removed).toEqual([wrapper.sessionId]);
  },
);

test.for(["run", "program"] as const)(
  "the server crashes while a %s holds the key of an active run whose lease has ended: the newer token stays",
  async (kind) => {
    const { world, runs, wrapper } = await createRunFixture({ ttlMs: 5_000 });
    wrapper.processState = "stopped";
    wrapper.dropsTraffic = true;
    await world.clock.advance(5_001);
    const otherClient = await world.connectClient();
    const claim = makeClaim("k", { ttlMs: "session" });
    const { token } = expectHeld(await otherClient.driver.claim(claim));
    if (kind === "run") runs.all.set(otherClient.sessionId, { life: "works", claims: [[claim, token]] });
    wrapper.isUnreachable = true;
    await restartServer(world);
    await world.clock.advance(2_000);
    expect((await otherClient.driver.renew([claim]))[0]).toMatchObject({ state: "held", token });
    expect([...world.inspect().records.values()].map((record) => record.token)).toEqual([Number(token)]);
  },
);

test.for(["before", "after", "when it is left", "never"] as const)(
  "--hold-at-least, wrapper and command killed, the server crashes %s: the key stays held for the remaining time, and no longer",
  async (when) => {
    const { world, runs, wrapper, is, die, token } = await createRunFixture({ ttlMs: 60_000 });
    const entry = runs.all.get(wrapper.sessionId);
    if (entry !== undefined) entry.holdUntil = world.clock.now() + 40_000;
    await world.clock.advance(10_000);
    if (when === "before") world.crash();
    const goOn = when === "when it is left" ? world.storage?.blockWrites() : undefined;
    is("over");
    die();
    if (when === "before") await world.start();
    await world.clock.advance(1_000);
    expect(runs.removed).toEqual(goOn === undefined ? [wrapper.sessionId] : []);
    if (when === "after" || when === "when it is left") world.crash();
    goOn?.();
    if (when === "after" || when === "when it is left") await world.start();
    await world.clock.advance(1_000);
    expect(runs.removed).toEqual([wrapper.sessionId]);
    // for a claim restored from the journal the elapsed time is not known
    const longest = when === "after" ? 61_000 : 29_000;
    await world.clock.advance(27_000);
    expect(await openWaiter(world)).toEqual({ state: "none" });
    await world.clock.advance(longest - 27_000);
    expect(expectHeld(await openWaiter(world)).token).toBeGreaterThan(token);
  },
);

test.for(["for a while", "until the time is over"] as const)(
  "--hold-at-least, wrapper and command killed while the disk is full (%s): the key stays held for the remaining time, and the file is removed",
  async (duration) => {
    const { world, runs, wrapper, is, die, token } = await createRunFixture({ ttlMs: 60_000 });
    const storage = world.storage as NonNullable<typeof world.storage>;
    const entry = runs.all.get(wrapper.sessionId);
    if (entry !== undefined) entry.holdUntil = world.clock.now() + 40_000;
    storage.isFull = "journal";
    const startedAt = world.clock.now();
    is("over");
    die();
    await world.clock.advance(10_000);
    expect(world.inspect().records.size).toBe(1);
    expect(runs.removed).toEqual([]);
    // once a second, not at each check of the run
    expect(storage.writes.filter((what) => what !== "save").length).toBeLessThan(30);
    if (duration === "for a while") {
      storage.isFull = false;
      await world.clock.advance(3_000);
      expect(runs.removed).toEqual([wrapper.sessionId]);
      expect([...world.inspect().records.values()]).toMatchObject([{ isDetached: true }]);
      expect(world.inspect().sessions.has(wrapper.sessionId)).toBe(false);
    }
    await world.clock.advance(startedAt + 39_000 - world.clock.now());
    expect(world.inspect().records.size).toBe(1);
    await world.clock.advance(3_000);
    expect(world.inspect().records.size).toBe(0);
    expect(runs.removed).toEqual([wrapper.sessionId]);
    storage.isFull = false;
    await world.clock.advance(2_000);
    expect(expectHeld(await openWaiter(world)).token).toBeGreaterThan(token);
  },
);

test("--hold-at-least, the disk hangs until the time is over: nothing remains of the run, and nothing is restored later", async () => {
  const { world, runs, wrapper, is, die } = await createRunFixture({ ttlMs: 60_000 });
  const entry = runs.all.get(wrapper.sessionId);
  if (entry !== undefined) entry.holdUntil = world.clock.now() + 10_000;
  const goOn = world.storage?.blockWrites();
  is("over");
  die();
  await world.clock.advance(9_000);
  expect(await openWaiter(world)).toEqual({ state: "none" });
  expect(runs.removed).toEqual([]);
  await world.clock.advance(2_000);
  expect(runs.removed).toEqual([wrapper.sessionId]);
  goOn?.();
  await world.clock.advance(1_000);
  expect(world.inspect().records.size).toBe(0);
  expect(world.inspect().sessions.has(wrapper.sessionId)).toBe(false);
});

test("--hold-at-least, wrapper and command killed after the time is over: the lease ends with them", async () => {
  const { world, runs, wrapper, is, die } = await createRunFixture({ ttlMs: 60_000 });
  const entry = runs.all.get(wrapper.sessionId);
  if (entry !== undefined) entry.holdUntil = world.clock.now() + 1_000;
  await world.clock.advance(1_000);
  is("over");
  die();
  await world.clock.advance(200);
  expect(await openWaiter(world)).toMatchObject({ state: "held" });
  expect(runs.removed).toEqual([wrapper.sessionId]);
});

test("a start waits 60 s for a run whose state is unknown", async () => {
  const { world, is, die } = await createRunFixture();
  is("unknown");
  die();
  await restartServer(world);
  await world.clock.advance(MINUTE_MS - 1_000);
  expect(await openWaiter(world)).toEqual({ state: "none" });
  await world.clock.advance(2_000);
  expect(await openWaiter(world)).toMatchObject({ state: "held" });
});

test("a run that began while no server was running, its wrapper dead before the server returned: found when its session is checked", async () => {
  const { world, runs, wrapper, die } = await createRunFixture();
  const entry = runs.all.get(wrapper.sessionId);
  runs.all.clear();
  wrapper.isUnreachable = true;
  await restartServer(world);
  await world.clock.advance(2_000);
  if (entry !== undefined) runs.all.set(wrapper.sessionId, entry);
  die();
  await world.clock.advance(10 * MINUTE_MS);
  expect(await openWaiter(world)).toEqual({ state: "none" });
  expect(world.inspect().recoveryRemainingMs).toBe(0);
});

test("a run that began while no server was running, its wrapper dead between its hello and its reclaim: its claims are restored", async () => {
  const { world, runs, wrapper, die } = await createRunFixture();
  const session = wrapper.sessionId;
  const entry = runs.all.get(session);
  runs.all.clear();
  await restartServer(world);
  const passed = world.clock.advance(2_000);
  while (!world.inspect().sessions.get(session)?.sink) await flushEventLoop(1);
  if (entry !== undefined) runs.all.set(session, entry);
  die();
  await passed;
  expect(world.inspect().records.size).toBe(1);
  await world.clock.advance(10 * MINUTE_MS);
  expect(await openWaiter(world)).toEqual({ state: "none" });
  expect(world.inspect().recoveryRemainingMs).toBe(0);
});

test.for(["crash", "stop"] as const)(
  "a damaged file: after a %s nothing new is granted for 60 s, then grants resume",
  async (how) => {
    const { world, runs, die } = await createRunFixture();
    runs.all.clear();
    runs.unreadable = true;
    die();
    await restartServer(world, how);
    expect(world.inspect().recoveryRemainingMs).toBe(MINUTE_MS);
    expect((await openWaiter(world, "other")).state).not.toBe("held");
    await world.clock.advance(MINUTE_MS);
    expect(await openWaiter(world, "other")).toMatchObject({ state: "held" });
  },
);

test.for(["crash", "stop"] as const)(
  "permits and several keys are restored unchanged (%s): only the permits that are left are granted",
  async (how) => {
    const of3 = (permits: number): LockSpec => ({ key: "p", permits, limit: 3 });
    const { world, is, die } = await createRunFixture({}, ["a", of3(2)]);
    die();
    await restartServer(world, how);
    expect(await openWaiter(world, "a")).toEqual({ state: "none" });
    expect(await openWaiter(world, [of3(2)])).toEqual({ state: "none" });
    expect(await openWaiter(world, [of3(1)])).toMatchObject({ state: "held" });
    is("over");
    await world.clock.advance(200);
    expect(await openWaiter(world, "a")).toMatchObject({ state: "held" });
  },
);

test("a claim that was revoked from a run stays revoked over a clean restart", async () => {
  const { world, die, token } = await createRunFixture();
  const operator = await world.connectClient();
  await operator.driver.revoke?.([{ key: "k", token, now: false }]);
  die();
  await restartServer(world, "stop");
  expect([...world.inspect().records.values()].map(({ revokeReason }) => revokeReason)).toEqual(["revoked"]);
  expect(await openWaiter(world)).toEqual({ state: "none" });
});

test("a stopped program that uses the library keeps its limit of 60 s", async () => {
  const { world, runs, wrapper } = await createRunFixture();
  runs.all.clear();
  wrapper.processState = "stopped";
  wrapper.isUnreachable = true;
  await restartServer(world);
  expect((await openWaiter(world)).state).not.toBe("held");
  await world.clock.advance(MINUTE_MS + 1_000);
  expect(await openWaiter(world)).toMatchObject({ state: "held" });
});
