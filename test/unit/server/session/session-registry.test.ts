// When the claims of a client end: how it was connected, and what its process, or a run of it, does, decides.

import { expect, test } from "vitest";
import type { Principal } from "../../../../src/auth/access-control.ts";
import { ANONYMOUS } from "../../../../src/auth/access-control.ts";
import type { ProcessState } from "../../../../src/os/process-info.ts";
import { PROTOCOL_VERSION } from "../../../../src/protocol/handshake.ts";
import type { CommandRun, RunStatus } from "../../../../src/server/runs/command-run.ts";
import type { NotificationSink, Session } from "../../../../src/server/session/session.ts";
import { SessionRegistry } from "../../../../src/server/session/session-registry.ts";
import type { Claim } from "../../../../src/spi/driver.ts";
import { randomId } from "../../../../src/util/ids.ts";
import { flushEventLoop } from "../../../support/fake-clock.ts";
import { cleanUpAfterEach, makeClaim } from "../../../support/server-fixture.ts";
import { ServerHarness } from "../../../support/server-harness.ts";

cleanUpAfterEach();

const SESSION_MS = 30_000;

type TestConnection = NotificationSink & { readonly isLocal: boolean };

/** A registry of its own over the backend of a server. */
class Fixture {
  readonly harness = new ServerHarness();
  registry!: SessionRegistry;
  processState: ProcessState = "running";
  runStatus: RunStatus | null = null;
  holdMs = 0;
  runClaims: Claim[] = [];
  removedRuns = 0;
  readonly forgottenSessions: Session[] = [];
  readonly foundRuns: CommandRun[] = [];

  static async create(): Promise<Fixture> {
    const fixture = new Fixture();
    await fixture.harness.start();
    fixture.restart();
    return fixture;
  }

  /** A new registry, which knows no session yet. */
  restart(): void {
    const find = (session: string): CommandRun | null => (this.runStatus === null ? null : this.createRun(session));
    const runs = { find, findLiving: async () => ({ runs: [], hasUnreadable: false }) };
    const { backend } = this.harness.inspect();
    this.registry = new SessionRegistry(backend, this.harness.clock, () => this.processState, SESSION_MS, runs, {
      onForgotten: (session) => void this.forgottenSessions.push(session),
      onRunFound: (_, run) => void this.foundRuns.push(run),
    });
  }

  /** A new registry, and this session as it comes from the disk. */
  restore(session: Session, run: CommandRun | null = null): void {
    session.heapIndex = -1;
    this.restart();
    this.registry.restore(session, run);
  }

  createRun(session: string): CommandRun {
    return {
      session,
      label: "",
      wrapper: { pid: 1, pidStart: "1" },
      keeper: null,
      claims: this.runClaims.map((claim) => ({ claim, firstToken: 1n, token: 1n, prefix: "" })),
      remainingHoldMs: () => this.holdMs,
      probe: () => ({ status: this.runStatus ?? "unnamed", nextProbeMs: 100 }),
      remove: () => {
        this.removedRuns++;
      },
    };
  }

  connect(isLocal = true): TestConnection {
    return {
      isLocal,
      pushAnswer: () => undefined,
      pushRecheck: () => undefined,
      pushRecalled: () => undefined,
      fail: () => undefined,
    };
  }

  open(connection: TestConnection, session = randomId(), principal: Principal = ANONYMOUS): Session {
    const hello = { protocol: PROTOCOL_VERSION, version: "", label: "", session, pid: 7, pidStart: "9" };
    return this.registry.open({ ...hello, keepSession: false }, connection, principal).session;
  }

  claim(session: Session, key: string, ttlMs: number | "session" = 3_600_000): Claim {
    const claim = makeClaim(key, { ttlMs });
    void this.harness.inspect().backend.claim(session, claim);
    return claim;
  }

  has(claim: Claim): boolean {
    return this.harness.inspect().records.has(claim.id);
  }

  /** Lets time pass without the server's own timer, and checks what is due after each second. */
  async advance(ms: number): Promise<void> {
    for (let remaining = ms; remaining > 0; remaining -= 1_000) {
      this.harness.clock.jump(Math.min(remaining, 1_000));
      this.registry.advance(this.harness.clock.now());
      await flushEventLoop(2);
    }
  }
}

interface ClientFixture {
  readonly fixture: Fixture;
  readonly connection: TestConnection;
  readonly session: Session;
  readonly claims: Readonly<Record<"leased" | "session" | "waiting", Claim>>;
  /** Names of the claims that remain. */
  listRemaining(): string[];
  /** Its connection ends. */
  disconnect(isClosedByServer?: boolean): void;
}

/** A client with a held claim of each kind and a waiting one. */
async function createClient(isLocal: boolean): Promise<ClientFixture> {
  const fixture = await Fixture.create();
  const connection = fixture.connect(isLocal);
  const session = fixture.open(connection);
  const other = fixture.open(fixture.connect());
  fixture.claim(other, "busy", 3_600_000);
  await flushEventLoop();
  const claims = {
    leased: fixture.claim(session, "a"),
    session: fixture.claim(session, "b", "session"),
    waiting: fixture.claim(session, "busy"),
  };
  await flushEventLoop();
  const listRemaining = (): string[] =>
    Object.entries(claims)
      .filter(([, claim]) => fixture.has(claim))
      .map(([name]) => name);
  const disconnect = (isClosedByServer = false): void =>
    fixture.registry.connectionLost(session, connection, isClosedByServer);
  expect(listRemaining()).toEqual(["leased", "session", "waiting"]);
  return { fixture, connection, session, claims, listRemaining, disconnect };
}

test("local client gone: its claims end at once", async () => {
  const { fixture, session, listRemaining, disconnect } = await createClient(true);
  session.isPersisted = true;
  disconnect();
  expect([listRemaining(), session.isEnded, fixture.registry.byId.has(session.id)]).toEqual([[], true, false]);
  expect(fixture.forgottenSessions).toEqual([session]);
  disconnect();
});

test("local client gone while a child keeps its session: waiting claims end, held ones with the last connection", async () => {
  const { fixture, session, listRemaining, disconnect } = await createClient(true);
  const child = fixture.connect();
  expect(fixture.registry.attachKeepSession(session.id, child)).toBe(session);
  expect(fixture.registry.attachKeepSession(randomId(), child)).toBeNull();
  disconnect();
  expect(listRemaining()).toEqual(["leased", "session"]);
  fixture.registry.connectionLost(session, child);
  expect(listRemaining()).toEqual([]);
});

test("the end of a replaced connection means nothing; the end of the newer one does", async () => {
  const { fixture, connection, session, listRemaining, disconnect } = await createClient(true);
  const newer = fixture.connect();
  const hello = { protocol: PROTOCOL_VERSION, version: "", label: "", session: session.id, pid: null, pidStart: null };
  const { replaced } = fixture.registry.open({ ...hello, keepSession: false }, newer, ANONYMOUS);
  expect(replaced).toBe(connection);
  disconnect();
  expect(listRemaining()).toHaveLength(3);
  fixture.registry.connectionLost(session, newer);
  expect(listRemaining()).toEqual([]);
});

test("a session belongs to its account: another one cannot open it", async () => {
  const fixture = await Fixture.create();
  const session = fixture.open(fixture.connect(), randomId(), { ...ANONYMOUS, name: "ana" });
  expect(() => fixture.open(fixture.connect(), session.id, { ...ANONYMOUS, name: "bob" })).toThrow(
    expect.objectContaining({ code: "AUTH" }),
  );
});

test("a process id that is not of this machine is not kept", async () => {
  const fixture = await Fixture.create();
  const open = (processState: ProcessState): number | null => {
    fixture.processState = processState;
    return fixture.open(fixture.connect()).pid;
  };
  expect((["running", "stopped", "gone"] as const).map(open)).toEqual([7, 7, null]);
  const hello = { protocol: PROTOCOL_VERSION, version: "", label: "", pid: 7, pidStart: null, keepSession: false };
  const { session } = fixture.registry.open({ ...hello, session: randomId() }, fixture.connect(), ANONYMOUS);
  expect(session.pid).toBeNull();
});

test("remote client gone: waiting claims end after 5 s, session claims after 30 s, leased ones never by this", async () => {
  const { fixture, session, listRemaining, disconnect } = await createClient(false);
  disconnect();
  disconnect();
  await fixture.advance(4_000);
  expect(listRemaining()).toHaveLength(3);
  await fixture.advance(1_000);
  expect(listRemaining()).toEqual(["leased", "session"]);
  await fixture.advance(26_000);
  expect([listRemaining(), session.isEnded]).toEqual([["leased"], false]);
  await fixture.advance(30_000);
  expect(session.isEnded).toBe(false);
  fixture.harness.inspect().backend.endClaims(session, "all");
  await fixture.advance(30_000);
  expect(session.isEnded).toBe(true);
});

test("remote client that returns keeps its claims; if it is silent then, its session claims end", async () => {
  const { fixture, session, listRemaining, disconnect } = await createClient(false);
  disconnect();
  await fixture.advance(3_000);
  fixture.open(fixture.connect(false), session.id);
  await fixture.advance(20_000);
  expect([listRemaining(), session.state.kind]).toEqual([["leased", "session", "waiting"], "connected"]);
  await fixture.advance(31_000);
  expect(listRemaining()).toEqual(["leased", "waiting"]);
  await fixture.advance(31_000);
  expect(listRemaining()).toEqual(["leased", "waiting"]);
});

test("remote client that was heard recently is checked again when its silence would be too long", async () => {
  const { fixture, session, listRemaining, disconnect } = await createClient(false);
  await fixture.advance(29_000);
  session.lastHeardAt = fixture.harness.clock.now();
  await fixture.advance(2_000);
  expect(listRemaining()).toContain("session");
  disconnect();
  await fixture.advance(10_000);
  expect(listRemaining()).toEqual(["leased", "session"]);
});

test("local client whose connection the server closed may be alive: it has the time of a remote one", async () => {
  const { fixture, listRemaining, disconnect } = await createClient(true);
  disconnect(true);
  expect(listRemaining()).toHaveLength(3);
  await fixture.advance(5_000);
  expect(listRemaining()).toEqual(["leased", "session"]);
});

test.for<[state: ProcessState, listRemaining: readonly string[]]>([
  ["gone", []],
  ["running", ["leased"]],
  ["stopped", ["leased", "session", "waiting"]],
  ["unknown", ["leased"]],
])("restored local session, its process is %s: a minute later %s is listRemaining", async ([state, expected]) => {
  const { fixture, session, listRemaining } = await createClient(true);
  fixture.restore(session);
  await fixture.advance(1_000);
  expect(listRemaining()).toHaveLength(3);
  fixture.processState = state;
  await fixture.advance(61_000);
  expect(listRemaining()).toEqual(expected);
});

test("restored local session without a process id, and without a lease: forgotten after a minute", async () => {
  const fixture = await Fixture.create();
  fixture.processState = "gone";
  const session = fixture.open(fixture.connect());
  const claim = fixture.claim(session, "k", "session");
  await flushEventLoop();
  fixture.restore(session);
  await fixture.advance(59_000);
  expect(fixture.has(claim)).toBe(true);
  await fixture.advance(2_000);
  expect([fixture.has(claim), session.isEnded]).toEqual([false, true]);
});

test("restored local session that a child keeps alive: its process may end", async () => {
  const { fixture, session, listRemaining } = await createClient(true);
  fixture.restore(session);
  const child = fixture.connect();
  fixture.registry.attachKeepSession(session.id, child);
  fixture.processState = "gone";
  await fixture.advance(10_000);
  expect(listRemaining()).toHaveLength(3);
  fixture.registry.connectionLost(session, child);
  await fixture.advance(2_000);
  expect(listRemaining()).toEqual([]);
});

test("restored remote session: waiting claims have a minute", async () => {
  const { fixture, session, listRemaining } = await createClient(false);
  fixture.restore(session);
  await fixture.advance(59_000);
  expect(listRemaining()).toEqual(["leased", "waiting"]);
  await fixture.advance(2_000);
  expect(listRemaining()).toEqual(["leased"]);
});

test("restored client that connects, and is cut off before it has reclaimed, is checked like one that has not returned", async () => {
  const { fixture, session, listRemaining } = await createClient(true);
  fixture.restore(session);
  const connection = fixture.connect();
  fixture.open(connection, session.id);
  expect([session.state.kind, session.hasReclaimed]).toEqual(["connected", false]);
  fixture.registry.connectionLost(session, connection);
  await fixture.advance(1_000);
  expect([listRemaining().length, session.state.kind]).toEqual([3, "restored"]);
});

test("a run keeps the held claims of its dead wrapper, and renews them, until it is over", async () => {
  const { fixture, session, claims, listRemaining, disconnect } = await createClient(true);
  fixture.runStatus = "works";
  disconnect();
  expect([listRemaining(), session.state.kind]).toEqual([["leased", "session"], "running"]);
  const expiresAt = (): number => fixture.harness.inspect().records.get(claims.leased.id)?.expiresAt as number;
  const first = expiresAt();
  await fixture.advance(10_000);
  expect(expiresAt()).toBe(first);
  fixture.harness.clock.jump(2_000_000);
  await fixture.advance(1_000);
  expect(expiresAt()).toBeGreaterThan(first);
  fixture.runStatus = "held";
  await fixture.advance(10_000);
  expect(listRemaining()).toEqual(["leased", "session"]);
  fixture.runStatus = "over";
  await fixture.advance(1_000);
  expect([listRemaining(), fixture.removedRuns, session.isEnded]).toEqual([[], 1, true]);
});

test("a failed renewal for a run is repeated", async () => {
  const { fixture, listRemaining, disconnect } = await createClient(true);
  fixture.runStatus = "works";
  disconnect();
  const { storage } = fixture.harness;
  if (storage !== null) storage.isFull = true;
  fixture.harness.clock.jump(2_000_000);
  await fixture.advance(2_000);
  expect(listRemaining()).toEqual(["leased", "session"]);
});

test("a child that is connected keeps the claims of a run that is over", async () => {
  const { fixture, session, listRemaining, disconnect } = await createClient(true);
  fixture.runStatus = "works";
  disconnect();
  const child = fixture.connect();
  fixture.registry.attachKeepSession(session.id, child);
  fixture.runStatus = "over";
  await fixture.advance(5_000);
  expect(listRemaining()).toEqual(["leased", "session"]);
  fixture.registry.connectionLost(session, child);
  await fixture.advance(1_000);
  expect(listRemaining()).toEqual([]);
});

test("a run whose state is unknown has a minute", async () => {
  const { fixture, listRemaining, disconnect } = await createClient(true);
  fixture.runStatus = "unknown";
  disconnect();
  await fixture.advance(59_000);
  expect(listRemaining()).toEqual(["leased", "session"]);
  await fixture.advance(2_000);
  expect(listRemaining()).toEqual(["leased"]);
});

test("a finished run with --hold-at-least: its claims are detached for the rest, its other ones end", async () => {
  const { fixture, claims, listRemaining, disconnect } = await createClient(true);
  fixture.runStatus = "over";
  fixture.holdMs = 10_000;
  fixture.runClaims = [claims.leased];
  const { storage } = fixture.harness;
  if (storage === null) throw new Error("it has a disk");
  storage.isFull = true;
  disconnect();
  await fixture.advance(3_000);
  expect([listRemaining(), fixture.removedRuns]).toEqual([["leased", "session"], 0]);
  storage.isFull = false;
  const open = storage.blockWrites();
  await fixture.advance(3_000);
  expect(fixture.removedRuns).toBe(0);
  open();
  await fixture.advance(3_000);
  expect([listRemaining(), fixture.removedRuns]).toEqual([["leased"], 1]);
  expect(fixture.harness.inspect().records.get(claims.leased.id)?.isDetached).toBe(true);
});

test("a finished run without claims in the table needs no write", async () => {
  const { fixture, listRemaining, disconnect } = await createClient(true);
  fixture.runStatus = "over";
  fixture.holdMs = 10_000;
  disconnect();
  await fixture.advance(3_000);
  expect([listRemaining(), fixture.removedRuns]).toEqual([[], 1]);
});

test("a run without a file reports nothing: the process of a client that has not reclaimed decides, another one's claims end", async () => {
  const live = await createClient(true);
  live.fixture.runStatus = "works";
  live.disconnect();
  live.fixture.runStatus = "unnamed";
  await live.fixture.advance(1_000);
  expect(live.listRemaining()).toEqual([]);
  const { fixture, session, listRemaining } = await createClient(true);
  fixture.restore(session, fixture.createRun(session.id));
  await fixture.advance(5_000);
  expect([listRemaining().length, session.state.kind]).toEqual([3, "restored"]);
  const connection = fixture.connect();
  fixture.open(connection, session.id);
  fixture.runStatus = "works";
  fixture.registry.connectionLost(session, connection);
  expect([listRemaining().length, session.state.kind]).toEqual([2, "running"]);
  fixture.runStatus = "unnamed";
  await fixture.advance(5_000);
  expect([listRemaining().length, session.state.kind]).toEqual([2, "restored"]);
});

test("a run that begins while no server runs is found when its wrapper has ended", async () => {
  const { fixture, session, listRemaining } = await createClient(true);
  fixture.restore(session);
  fixture.runStatus = "works";
  fixture.processState = "gone";
  await fixture.advance(5_000);
  expect([listRemaining().length, fixture.foundRuns.length]).toEqual([3, 1]);
});

test("a run of a client that returns and is lost before it has reclaimed is reported", async () => {
  const { fixture, session } = await createClient(true);
  fixture.restore(session);
  const connection = fixture.connect();
  fixture.open(connection, session.id);
  fixture.runStatus = "works";
  fixture.registry.connectionLost(session, connection);
  expect(fixture.foundRuns).toHaveLength(1);
  const child = fixture.connect();
  fixture.registry.attachKeepSession(session.id, child);
  fixture.registry.connectionLost(session, child);
  expect(fixture.registry.nextDueAt()).toBe(fixture.harness.clock.now());
});
