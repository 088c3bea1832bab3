// However much one connection sends at a time, other clients are served in between. Time passes only when the clock is read, a
// little at each reading: the work between two readings counts as one step, on any machine.

import { expect, test } from "vitest";
import type { LockTable } from "../../../src/lock-table/table.ts";
import { RoundRobinScheduler } from "../../../src/server/time-slicer.ts";
import { randomId } from "../../../src/util/ids.ts";
import { FakeClock, flushEventLoop } from "../../support/fake-clock.ts";
import { FrameConnection } from "../../support/frame-connection.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { cleanUpAfterEach } from "../../support/server-fixture.ts";
import { ServerHarness } from "../../support/server-harness.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

/** How long a reading of the clock takes. */
const CLOCK_STEP_MS = 0.5;
/** A slice, and the steps with which it ends. */
const SLICE_MS = 5 + 20 * CLOCK_STEP_MS;

class SteppingClock extends FakeClock {
  override now(): number {
    this.jump(CLOCK_STEP_MS);
    return super.now();
  }
}

class TimedConnection extends FrameConnection {
  readonly #clock: FakeClock;

  constructor(harness: ServerHarness) {
    super(harness);
    this.#clock = harness.clock;
  }

  /** Numbers of calls in the order of their answers. */
  get answers(): unknown[] {
    return this.replies.flatMap(([kind, n]) => (kind === "ok" || kind === "error" ? [n] : []));
  }

  get failed(): unknown[] {
    return this.replies.flatMap(([kind, n]) => (kind === "error" ? [n] : []));
  }

  /** Sends these lines at once; returns how long it was before it could send more. */
  sendLines(...lines: readonly string[]): number {
    const startedAt = this.#clock.now();
    this.connection.receive(lines);
    return this.#clock.now() - startedAt;
  }
}

async function createBusyHarness(options: ConstructorParameters<typeof ServerHarness>[0] = {}): Promise<ServerHarness> {
  const harness = new ServerHarness(options);
  Object.assign(harness, { clock: new SteppingClock() });
  await harness.start();
  return harness;
}

const lockTable = (harness: ServerHarness): LockTable => harness.inspect().table;
const makeIds = (count: number): string[] => Array.from({ length: count }, randomId);
const sharedSpec = (key: string): readonly unknown[] => [key, 1, 1_000_000];

/** Lines of every expensive kind, each answered with so many replies. */
const EXPENSIVE_FRAMES: readonly (readonly [name: string, frames: () => readonly unknown[]])[] = [
  [
    "revocations",
    () =>
      Array.from({ length: 229 }, (_, n) => [
        "revoke",
        n,
        Array.from({ length: 64 }, (_, index) => ["k", String(index), true]),
      ]),
  ],
  ["claims", () => makeIds(229).map((id, n) => ["claim", n, id, [sharedSpec("k")], 30_000])],
  ["pings", () => makeIds(229).map((_, n) => ["ping", n])],
  ["renewals", () => [["renew", 0, makeIds(5_000)]]],
  ["releases", () => [["release", 0, makeIds(5_000)]]],
  ["detachments", () => [["detach", 0, makeIds(5_000)]]],
  [
    "reclaims",
    () => [
      [
        "reclaim",
        0,
        makeIds(2_000).map((id) => [
          [id, [sharedSpec("k")], 30_000],
          ["held", "5", 1, 9_000],
        ]),
        false,
      ],
    ],
  ],
];

test.each(EXPENSIVE_FRAMES)("a line of %s is answered in slices, and other clients in between", async (_, frames) => {
  const harness = await createBusyHarness({ state: "none" });
  const [heavyConnection, other] = [new TimedConnection(harness).hello(), new TimedConnection(harness).hello()];
  const allFrames = frames();
  expect(
    heavyConnection.sendLines(heavyConnection.line(...allFrames), heavyConnection.line(["ping", 5_000])),
  ).toBeLessThan(SLICE_MS);
  expect(heavyConnection.answers.length).toBeLessThan(allFrames.length);
  expect(heavyConnection.isPaused).toBe(true);
  // its later lines wait for their turn
  heavyConnection.sendLines(heavyConnection.line(["ping", 5_001]));
  let rounds = 0;
  for (; !heavyConnection.answers.includes(5_001); rounds++) {
    expect(other.sendLines(other.line(["ping", rounds]))).toBeLessThan(SLICE_MS);
    expect(other.answers).toContain(rounds);
    const startedAt = harness.clock.now();
    await harness.clock.advance(0.01);
    expect(harness.clock.now() - startedAt).toBeLessThan(2 * SLICE_MS);
  }
  expect(rounds).toBeGreaterThan(3);
  expect(heavyConnection.answers).toEqual([...allFrames.map((_, n) => n), 5_000, 5_001]);
  expect(heavyConnection.failed).toEqual([]);
  expect(heavyConnection.isPaused).toBe(false);
  // and again, from the initial state
  heavyConnection.sendLines(heavyConnection.line(["ping", 5_002]));
  expect(heavyConnection.answers.at(-1)).toBe(5_002);
});

test("a large frame is carried out completely, with its answers in order", async () => {
  const harness = await createBusyHarness();
  const heavyConnection = new TimedConnection(harness).hello();
  const ownIds = makeIds(1_000);
  heavyConnection.sendLines(heavyConnection.line(...ownIds.map((id, n) => ["claim", n, id, [`k${n}`], 30_000])));
  await harness.clock.advance(1_000);
  expect(heavyConnection.answers).toHaveLength(1_000);
  const { records } = lockTable(harness);
  expect(records.size).toBe(1_000);
  heavyConnection.sendLines(
    heavyConnection.line(
      ["release", 2_000, [...ownIds.slice(0, 700), ...makeIds(300)]],
      ["renew", 2_001, ownIds.slice(700)],
    ),
  );
  expect(heavyConnection.answers).not.toContain(2_000);
  await harness.clock.advance(1_000);
  expect(heavyConnection.answers.slice(-2)).toEqual([2_000, 2_001]);
  expect(ownIds.map((id) => records.has(id))).toEqual(ownIds.map((_, n) => n >= 700));
});

test("when a connection ends, its unprocessed calls are dropped, like lost ones", async () => {
  const harness = await createBusyHarness();
  const [heavyConnection, other] = [new TimedConnection(harness).hello(), new TimedConnection(harness).hello()];
  heavyConnection.sendLines(heavyConnection.line(...makeIds(500).map((id, n) => ["claim", n, id, [`k${n}`], 30_000])));
  heavyConnection.connection.transportClosed();
  const { records } = lockTable(harness);
  await harness.clock.advance(2_000);
  expect(records.size).toBe(0);
  other.sendLines(other.line(["ping", 1]));
  expect(other.answers).toEqual([1]);
});

test("a malformed frame far behind ends the connection when it is reached", async () => {
  const harness = await createBusyHarness();
  const heavyConnection = new TimedConnection(harness).hello();
  heavyConnection.sendLines(
    heavyConnection.line(...makeIds(200).map((_, n) => ["ping", n]), "no frame", ["ping", 300]),
    heavyConnection.line(["ping", 301]),
  );
  expect(heavyConnection.isClosed).toBe(false);
  await harness.clock.advance(2_000);
  expect(heavyConnection.isClosed).toBe(true);
  expect(heavyConnection.answers).toEqual(Array.from({ length: 200 }, (_, n) => n));
});

test("each of many clients with large input gets its turn, and a new client is served at once", async () => {
  const harness = await createBusyHarness();
  const connections = Array.from({ length: 20 }, () => new TimedConnection(harness).hello());
  for (const connection of connections)
    connection.sendLines(connection.line(...makeIds(200).map((_, n) => ["ping", n])));
  // so that a new client does not wait for a slice of each of thousands
  expect(connections.at(-1)?.answers.length).toBeLessThan((connections[0]?.answers.length ?? 0) / 2);
  while (Math.max(...connections.map(({ answers }) => answers.length)) < 100) await harness.clock.advance(1);
  expect(Math.min(...connections.map(({ answers }) => answers.length))).toBeGreaterThan(60);
  const lateConnection = new TimedConnection(harness).hello();
  expect(lateConnection.sendLines(lateConnection.line(["ping", 1]))).toBeLessThan(SLICE_MS);
  expect(lateConnection.answers).toEqual([1]);
  while (connections.some(({ answers }) => answers.length < 200)) await harness.clock.advance(100);
  for (const { answers } of connections) expect(answers).toEqual(Array.from({ length: 200 }, (_, n) => n));
});

test("reclaim in slices: a session counts as completely reported only when its last claim is restored", async () => {
  const harness = await createBusyHarness();
  const firstConnection = new TimedConnection(harness).hello();
  const held = makeIds(300);
  firstConnection.sendLines(firstConnection.line(...held.map((id, n) => ["claim", n, id, [`k${n}`], 30_000])));
  await harness.clock.advance(2_000);
  const tokens = held.map((id) => lockTable(harness).records.get(id)?.token);
  harness.crash();
  await harness.start();
  expect(harness.inspect().isRecovering).toBe(true);
  const resumedConnection = new TimedConnection(harness).hello({ session: firstConnection.session });
  const items = held.map((id, n) => [
    [id, [`k${n}`], 30_000],
    ["held", String(tokens[n]), 1, 20_000],
  ]);
  resumedConnection.sendLines(resumedConnection.line(["reclaim", 1, items, true]));
  expect(harness.inspect().isRecovering).toBe(true);
  await harness.clock.advance(2_000);
  expect(resumedConnection.answers).toEqual([1]);
  expect(lockTable(harness).records.size).toBe(300);
  expect(harness.inspect().isRecovering).toBe(false);
  await flushEventLoop();
});

test("a client that had no turn when the slice ended is served in the next one", () => {
  const clock = new SteppingClock();
  const order: number[] = [];
  const scheduler = new RoundRobinScheduler(clock);
  const worker = (name: number, times: number) => ({
    runUntil: () => {
      order.push(name);
      clock.jump(3);
      return --times === 0;
    },
  });
  for (const name of [1, 2, 3]) scheduler.add(worker(name, 2));
  return clock.advance(100).then(() => expect(order).toEqual([1, 2, 3, 1, 2, 3]));
});
