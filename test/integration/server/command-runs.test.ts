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
    { status: RunStatus; claims: readonly (readonly [Claim, bigint])[]; holdUntil?: number }
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
      keeper: null,
      claims,
      remainingHoldMs: () => Math.max((entry.holdUntil ?? 0) - this.#now(), 0),
      probe: () => ({ status: this.all.get(session)?.status ?? "unnamed", nextProbeMs: 100 }),
      remove: () => {
        this.removed.push(session);
        this.all.delete(session);
      },
    };
  }
  async findLiving(): Promise<LivingRuns> {
    const runs = [...this.all]
      .filter(([, { status, holdUntil }]) => status !== "over" || (holdUntil ?? 0) > this.#now())
      .map(([session]) => this.find(session) as CommandRun);
    return { runs, hasUnreadable: this.unreadable };
  }
}

type RunFixture = {
  readonly harness: ServerHarness;
  readonly runs: MemoryRuns;
  readonly wrapper: HarnessClient;
  readonly claim: Claim;
  readonly token: bigint;
  /** The state of the run. */
  setStatus(life: RunStatus): void;
  /** The wrapper dies at once. */
  endWrapper(): void;
};

async function createRunFixture(
  overrides: Partial<Claim> = {},
  keys: Parameters<typeof makeClaim>[0] = "k",
): Promise<RunFixture> {
  const harness = new ServerHarness();
  const runs = new MemoryRuns(() => harness.clock.now());
  harness.commandRuns = runs;
  await harness.start();
  const wrapper = await harness.connectClient();
  const claim = makeClaim(keys, { ttlMs: "session", ...overrides });
  const { token } = expectHeld(await wrapper.driver.claim(claim));
  runs.all.set(wrapper.sessionId, { status: "works", claims: [[claim, token]] });
  return {
    harness: harness,
    runs,
    wrapper,
    claim,
    token,
    setStatus(status) {
      const entry = runs.all.get(wrapper.sessionId);
      if (entry !== undefined) entry.status = status;
    },
    endWrapper() {
      wrapper.processState = "gone";
      wrapper.isUnreachable = true;
      wrapper.disconnect();
    },
  };
}

const restartServer = async (harness: ServerHarness, ending: "crash" | "stop" = "crash"): Promise<void> => {
  if (ending === "crash") harness.crash();
  else await harness.stop();
  await harness.start();
};

async function openWaiter(harness: ServerHarness, key: string | readonly LockSpec[] = "k"): Promise<Answer> {
  const next = await harness.connectClient();
  return next.driver.claim(makeClaim(key, { wait: false }));
}

test.for(["crash", "stop"] as const)(
  "wrapper dead, server restarted (%s): the run's claims stay until it ends, and no other key waits",
  async (ending) => {
    const { harness, setStatus, endWrapper, token } = await createRunFixture();
    endWrapper();
    await restartServer(harness, ending);
    expect(harness.inspect().recoveryRemainingMs).toBe(0);
    expect(await openWaiter(harness, "other")).toMatchObject({ state: "held" });
    await harness.clock.advance(10 * MINUTE_MS);
    expect(await openWaiter(harness)).toEqual({ state: "none" });
    setStatus("over");
    await harness.clock.advance(200);
    expect(expectHeld(await openWaiter(harness)).token).toBeGreaterThan(token);
  },
);

test("wrapper stopped during a server crash: its claim stays while the wrapper lives, and is unchanged when it continues", async () => {
  const { harness, wrapper, setStatus, claim, token, runs } = await createRunFixture();
  setStatus("held");
  wrapper.processState = "stopped";
  wrapper.isUnreachable = true;
  await restartServer(harness);
  await harness.clock.advance(10 * MINUTE_MS);
  expect(await openWaiter(harness)).toEqual({ state: "none" });
  wrapper.processState = "running";
  wrapper.isUnreachable = false;
  await harness.clock.advance(5_000);
  expect((await wrapper.driver.renew([claim]))[0]).toMatchObject({ state: "held", token });
  expect(harness.inspect().records.size).toBe(1);
  runs.all.delete(wrapper.sessionId);
  expect(await wrapper.driver.release(toReleases(claim))).toEqual([true]);
  expect(await openWaiter(harness)).toMatchObject({ state: "held" });
});

test("a run keeps its claims and token while the server crashes again and again", async () => {
  const { harness, setStatus, endWrapper, token } = await createRunFixture();
  endWrapper();
  for (let times = 0; times < 5; times++) {
    await restartServer(harness, times % 2 === 0 ? "crash" : "stop");
    await harness.clock.advance(3_000);
    expect(await openWaiter(harness)).toEqual({ state: "none" });
    expect(harness.inspect().records.size).toBe(1);
  }
  // the clients that asked meanwhile are processes that a start waits for
  await harness.clock.advance(MINUTE_MS);
  expect(await openWaiter(harness)).toEqual({ state: "none" });
  setStatus("over");
  await harness.clock.advance(200);
  expect(expectHeld(await openWaiter(harness)).token).toBeGreaterThan(token);
});

test("wrapper dead, server running: the run keeps its claim until it ends, and loses its queue entry", async () => {
  const { harness, wrapper, runs, setStatus, endWrapper } = await createRunFixture();
  const otherClient = await harness.connectClient();
  await otherClient.driver.claim(makeClaim("line"));
  await wrapper.driver.claim(makeClaim("line"));
  endWrapper();
  await flushEventLoop();
  expect(harness.inspect().records.size).toBe(2);
  await harness.clock.advance(10 * MINUTE_MS);
  expect(await openWaiter(harness)).toEqual({ state: "none" });
  setStatus("over");
  await harness.clock.advance(200);
  expect(await openWaiter(harness)).toMatchObject({ state: "held" });
  expect(runs.removed).toEqual([wrapper.sessionId]);
});

test("a run whose file is gone has ended: the end of the connection counts", async () => {
  const { harness, runs, endWrapper } = await createRunFixture();
  runs.all.clear();
  endWrapper();
  await flushEventLoop();
  expect(await openWaiter(harness)).toMatchObject({ state: "held" });
});

test.for(["crash", "none"] as const)(
  "the lease of an active run is renewed for it (%s); the lease of a run whose wrapper is only stopped is not",
  async (ending) => {
    const { harness, setStatus, endWrapper } = await createRunFixture({ ttlMs: 5_000 });
    endWrapper();
    if (ending === "crash") await restartServer(harness);
    await harness.clock.advance(5 * MINUTE_MS);
    expect(await openWaiter(harness)).toEqual({ state: "none" });
    setStatus("held");
    await harness.clock.advance(6_000);
    expect(await openWaiter(harness)).toMatchObject({ state: "held" });
  },
);

test.for(["crash", "stop"] as const)(
  "a run that was ended while its wrapper was stopped (%s): its lease ends, and no key waits for the wrapper",
  async (ending) => {
    const { harness, runs, wrapper, setStatus } = await createRunFixture({ ttlMs: 5_000 });
    wrapper.processState = "stopped";
    wrapper.dropsTraffic = true;
    await harness.clock.advance(5_001);
    const next = await harness.connectClient();
    const claim = makeClaim("k", { ttlMs: 1_000 });
    const { token } = expectHeld(await next.driver.claim(claim));
    await next.driver.release(toReleases(claim));
    next.processState = "gone";
    next.disconnect();
    const entry = runs.all.get(wrapper.sessionId);
    if (entry !== undefined) entry.claims = [];
    setStatus("held");
    wrapper.isUnreachable = true;
    await restartServer(harness, ending);
    await harness.clock.advance(1_000);
    expect(harness.inspect().recoveryRemainingMs).toBe(0);
    expect(expectHeld(await openWaiter(harness)).token).toBeGreaterThan(token);
    expect(runs.removed).toEqual([]);
    setStatus("over");
    await harness.clock.advance(200);
    expect(runs.removed).toEqual([wrapper.sessionId]);
  },
);

test.for(["run", "program"] as const)(
  "the server crashes while a %s holds the key of an active run whose lease has ended: the newer token stays",
  async (kind) => {
    const { harness, runs, wrapper } = await createRunFixture({ ttlMs: 5_000 });
    wrapper.processState = "stopped";
    wrapper.dropsTraffic = true;
    await harness.clock.advance(5_001);
    const otherClient = await harness.connectClient();
    const claim = makeClaim("k", { ttlMs: "session" });
    const { token } = expectHeld(await otherClient.driver.claim(claim));
    if (kind === "run") runs.all.set(otherClient.sessionId, { status: "works", claims: [[claim, token]] });
    wrapper.isUnreachable = true;
    await restartServer(harness);
    await harness.clock.advance(2_000);
    expect((await otherClient.driver.renew([claim]))[0]).toMatchObject({ state: "held", token });
    expect([...harness.inspect().records.values()].map((record) => record.token)).toEqual([Number(token)]);
  },
);

test.for(["before", "after", "when it is left", "never"] as const)(
  "--hold-at-least, wrapper and command killed, the server crashes %s: the key stays held for the remaining time, and no longer",
  async (when) => {
    const { harness, runs, wrapper, setStatus, endWrapper, token } = await createRunFixture({ ttlMs: 60_000 });
    const entry = runs.all.get(wrapper.sessionId);
    if (entry !== undefined) entry.holdUntil = harness.clock.now() + 40_000;
    await harness.clock.advance(10_000);
    if (when === "before") harness.crash();
    const resumeWrites = when === "when it is left" ? harness.storage?.blockWrites() : undefined;
    setStatus("over");
    endWrapper();
    if (when === "before") await harness.start();
    await harness.clock.advance(1_000);
    expect(runs.removed).toEqual(resumeWrites === undefined ? [wrapper.sessionId] : []);
    if (when === "after" || when === "when it is left") harness.crash();
    resumeWrites?.();
    if (when === "after" || when === "when it is left") await harness.start();
    await harness.clock.advance(1_000);
    expect(runs.removed).toEqual([wrapper.sessionId]);
    // for a claim restored from the journal the elapsed time is not known
    const longest = when === "after" ? 61_000 : 29_000;
    await harness.clock.advance(27_000);
    expect(await openWaiter(harness)).toEqual({ state: "none" });
    await harness.clock.advance(longest - 27_000);
    expect(expectHeld(await openWaiter(harness)).token).toBeGreaterThan(token);
  },
);

test.for(["for a while", "until the time is over"] as const)(
  "--hold-at-least, wrapper and command killed while the disk is full (%s): the key stays held for the remaining time, and the file is removed",
  async (duration) => {
    const { harness, runs, wrapper, setStatus, endWrapper, token } = await createRunFixture({ ttlMs: 60_000 });
    const storage = harness.storage as NonNullable<typeof harness.storage>;
    const entry = runs.all.get(wrapper.sessionId);
    if (entry !== undefined) entry.holdUntil = harness.clock.now() + 40_000;
    storage.isFull = "journal";
    const startedAt = harness.clock.now();
    setStatus("over");
    endWrapper();
    await harness.clock.advance(10_000);
    expect(harness.inspect().records.size).toBe(1);
    expect(runs.removed).toEqual([]);
    // once a second, not at each check of the run
    expect(storage.writes.filter((operation) => operation !== "save").length).toBeLessThan(30);
    if (duration === "for a while") {
      storage.isFull = false;
      await harness.clock.advance(3_000);
      expect(runs.removed).toEqual([wrapper.sessionId]);
      expect([...harness.inspect().records.values()]).toMatchObject([{ isDetached: true }]);
      expect(harness.inspect().sessions.has(wrapper.sessionId)).toBe(false);
    }
    await harness.clock.advance(startedAt + 39_000 - harness.clock.now());
    expect(harness.inspect().records.size).toBe(1);
    await harness.clock.advance(3_000);
    expect(harness.inspect().records.size).toBe(0);
    expect(runs.removed).toEqual([wrapper.sessionId]);
    storage.isFull = false;
    await harness.clock.advance(2_000);
    expect(expectHeld(await openWaiter(harness)).token).toBeGreaterThan(token);
  },
);

test("--hold-at-least, the disk hangs until the time is over: nothing remains of the run, and nothing is restored later", async () => {
  const { harness, runs, wrapper, setStatus, endWrapper } = await createRunFixture({ ttlMs: 60_000 });
  const entry = runs.all.get(wrapper.sessionId);
  if (entry !== undefined) entry.holdUntil = harness.clock.now() + 10_000;
  const resumeWrites = harness.storage?.blockWrites();
  setStatus("over");
  endWrapper();
  await harness.clock.advance(9_000);
  expect(await openWaiter(harness)).toEqual({ state: "none" });
  expect(runs.removed).toEqual([]);
  await harness.clock.advance(2_000);
  expect(runs.removed).toEqual([wrapper.sessionId]);
  resumeWrites?.();
  await harness.clock.advance(1_000);
  expect(harness.inspect().records.size).toBe(0);
  expect(harness.inspect().sessions.has(wrapper.sessionId)).toBe(false);
});

test("--hold-at-least, wrapper and command killed after the time is over: the lease ends with them", async () => {
  const { harness, runs, wrapper, setStatus, endWrapper } = await createRunFixture({ ttlMs: 60_000 });
  const entry = runs.all.get(wrapper.sessionId);
  if (entry !== undefined) entry.holdUntil = harness.clock.now() + 1_000;
  await harness.clock.advance(1_000);
  setStatus("over");
  endWrapper();
  await harness.clock.advance(200);
  expect(await openWaiter(harness)).toMatchObject({ state: "held" });
  expect(runs.removed).toEqual([wrapper.sessionId]);
});

test("a start waits 60 s for a run whose state is unknown", async () => {
  const { harness, setStatus, endWrapper } = await createRunFixture();
  setStatus("unknown");
  endWrapper();
  await restartServer(harness);
  await harness.clock.advance(MINUTE_MS - 1_000);
  expect(await openWaiter(harness)).toEqual({ state: "none" });
  await harness.clock.advance(2_000);
  expect(await openWaiter(harness)).toMatchObject({ state: "held" });
});

test("a run that is unknown for a moment, long after its wrapper has died: its lock is kept", async () => {
  const { harness, setStatus, endWrapper } = await createRunFixture();
  endWrapper();
  await harness.clock.advance(10 * MINUTE_MS);
  setStatus("unknown");
  await harness.clock.advance(1_000);
  setStatus("works");
  await harness.clock.advance(1_000);
  expect(await openWaiter(harness)).toEqual({ state: "none" });
});

test("a run that began while no server was running, its wrapper dead before the server returned: found when its session is checked", async () => {
  const { harness, runs, wrapper, endWrapper } = await createRunFixture();
  const entry = runs.all.get(wrapper.sessionId);
  runs.all.clear();
  wrapper.isUnreachable = true;
  await restartServer(harness);
  await harness.clock.advance(2_000);
  if (entry !== undefined) runs.all.set(wrapper.sessionId, entry);
  endWrapper();
  await harness.clock.advance(10 * MINUTE_MS);
  expect(await openWaiter(harness)).toEqual({ state: "none" });
  expect(harness.inspect().recoveryRemainingMs).toBe(0);
});

test("a run that began while no server was running, its wrapper dead between its hello and its reclaim: its claims are restored", async () => {
  const { harness, runs, wrapper, endWrapper } = await createRunFixture();
  const session = wrapper.sessionId;
  const entry = runs.all.get(session);
  runs.all.clear();
  await restartServer(harness);
  const advance = harness.clock.advance(2_000);
  while (!harness.inspect().sessions.get(session)?.sink) await flushEventLoop(1);
  if (entry !== undefined) runs.all.set(session, entry);
  endWrapper();
  await advance;
  expect(harness.inspect().records.size).toBe(1);
  await harness.clock.advance(10 * MINUTE_MS);
  expect(await openWaiter(harness)).toEqual({ state: "none" });
  expect(harness.inspect().recoveryRemainingMs).toBe(0);
});

test.for(["crash", "stop"] as const)(
  "a damaged file: after a %s nothing new is granted for 60 s, then grants resume",
  async (ending) => {
    const { harness, runs, endWrapper } = await createRunFixture();
    runs.all.clear();
    runs.unreadable = true;
    endWrapper();
    await restartServer(harness, ending);
    expect(harness.inspect().recoveryRemainingMs).toBe(MINUTE_MS);
    expect((await openWaiter(harness, "other")).state).not.toBe("held");
    await harness.clock.advance(MINUTE_MS);
    expect(await openWaiter(harness, "other")).toMatchObject({ state: "held" });
  },
);

test.for(["crash", "stop"] as const)(
  "permits and several keys are restored unchanged (%s): only the permits that are left are granted",
  async (ending) => {
    const of3 = (permits: number): LockSpec => ({ key: "p", permits, limit: 3 });
    const { harness, setStatus, endWrapper } = await createRunFixture({}, ["a", of3(2)]);
    endWrapper();
    await restartServer(harness, ending);
    expect(await openWaiter(harness, "a")).toEqual({ state: "none" });
    expect(await openWaiter(harness, [of3(2)])).toEqual({ state: "none" });
    expect(await openWaiter(harness, [of3(1)])).toMatchObject({ state: "held" });
    setStatus("over");
    await harness.clock.advance(200);
    expect(await openWaiter(harness, "a")).toMatchObject({ state: "held" });
  },
);

test("a claim that was revoked from a run stays revoked over a clean restart", async () => {
  const { harness, endWrapper, token } = await createRunFixture();
  const operator = await harness.connectClient();
  await operator.driver.revoke?.([{ key: "k", token, now: false }]);
  endWrapper();
  await restartServer(harness, "stop");
  expect([...harness.inspect().records.values()].map(({ revokeReason }) => revokeReason)).toEqual(["revoked"]);
  expect(await openWaiter(harness)).toEqual({ state: "none" });
});

test("a stopped program that uses the library keeps its limit of 60 s", async () => {
  const { harness, runs, wrapper } = await createRunFixture();
  runs.all.clear();
  wrapper.processState = "stopped";
  wrapper.isUnreachable = true;
  await restartServer(harness);
  expect((await openWaiter(harness)).state).not.toBe("held");
  await harness.clock.advance(MINUTE_MS + 1_000);
  expect(await openWaiter(harness)).toMatchObject({ state: "held" });
});
