import { expect, test } from "vitest";
import type { CycleTimes, Measurements } from "../../../../../src/cli/commands/doctor/report.ts";
import { buildReport } from "../../../../../src/cli/commands/doctor/report.ts";
import type { TokenSample } from "../../../../../src/cli/commands/doctor/token-migration.ts";
import { checkTokens } from "../../../../../src/cli/commands/doctor/token-migration.ts";
import { CommandError } from "../../../../../src/cli/errors.ts";
import type { ServerInfo } from "../../../../../src/protocol/admin-frames.ts";
import { PACKAGE_VERSION, PROTOCOL_VERSION } from "../../../../../src/protocol/handshake.ts";

const SERVER_INFO: ServerInfo = {
  version: PACKAGE_VERSION,
  protocol: PROTOCOL_VERSION,
  runId: "k3vq7m2a",
  upMs: 7_300_000,
  wallMs: 1_000_000,
  recoveryRemainingMs: 0,
  reason: "",
  account: "ana",
  rights: ["acquire", "inspect"],
};

function measurements(change: Partial<Measurements> = {}, info: Partial<ServerInfo> = {}): Measurements {
  return {
    name: "holdfast://locks:7420",
    failure: null,
    connectMs: 3,
    isServer: true,
    info: { ...SERVER_INFO, ...info },
    storeChecks: null,
    wallMs: 1_000_010,
    roundTripMs: 2,
    key: "",
    cycles: lockCycles([0.5, 0.4, 9]),
    tokenComparison: null,
    ...change,
  };
}

function lockCycles(cyclesMs: CycleTimes["cyclesMs"], overrides: Partial<CycleTimes> = {}): CycleTimes {
  return { cyclesMs, paused: null, isForbidden: false, isFailing: false, ...overrides };
}

/** One finding: its level, its message, the advice. */
function findMessage(name: string, it: Measurements): readonly (string | undefined)[] {
  const check = buildReport(it).find((finding) => finding.name === name);
  return [check?.status, check?.message, check?.hint];
}

test("a healthy server: every check is ok and no action is suggested", () => {
  const checks = buildReport(measurements());
  expect(checks.map(({ status, name }) => `${name} ${status}`)).toEqual([
    "reachable ok",
    "versions ok",
    "state ok",
    "clocks ok",
    "rights ok",
    "latency ok",
  ]);
  expect(checks.some(({ hint }) => hint !== undefined)).toBe(false);
  expect(findMessage("latency", measurements())).toEqual([
    "ok",
    "acquire and release take 0.50 ms (the slowest of 3: 9.00 ms)",
    undefined,
  ]);
});

test("a server that is unreachable or refuses is reported with what to check", () => {
  const failure = new CommandError("unreachable", "holdfast://locks:7420 refused the connection");
  expect(buildReport(measurements({ failure }))).toEqual([
    { status: "fail", name: "reachable", message: failure.message, hint: expect.stringContaining("holdfast serve") },
  ]);
  const refusal = new CommandError("refused", "no valid credential was given");
  expect(findMessage("reachable", measurements({ failure: refusal }))[2]).toContain("HOLDFAST_CREDENTIAL_FILE");
  const name = "zookeeper://zk:2181";
  for (const commandError of [failure, refusal]) {
    const advice = findMessage("reachable", measurements({ failure: commandError, name }))[2];
    expect(advice, "where no server of ours is").not.toMatch(/holdfast serve|HOLDFAST_/);
    expect(advice).toMatch(/running there|refuses you/);
  }
});

test("a server that cannot grant reports why", () => {
  expect(findMessage("state", measurements({}, { reason: "the state cannot be written" }))).toEqual([
    "fail",
    "up for 2 h; it grants no locks: the state cannot be written",
    undefined,
  ]);
  const load = { connections: 3, sessions: 2, held: 5, waiting: 1 };
  expect(findMessage("state", measurements({}, { load }))[1]).toContain("3 connections, 5 claims held and 1 waiting");
});

test("clocks that differ are doubtful only beyond what the round trip explains", () => {
  expect(findMessage("clocks", measurements({ wallMs: 1_000_900, roundTripMs: 2 }))[0]).toBe("ok");
  expect(findMessage("clocks", measurements({ wallMs: 1_003_000, roundTripMs: 4_100 }))[0]).toBe("ok");
  expect(findMessage("clocks", measurements({ wallMs: 1_005_000 }))).toEqual([
    "warn",
    "the server's clock is 5 s behind the clock here",
    expect.stringContaining("NTP"),
  ]);
  expect(findMessage("clocks", measurements({ wallMs: 400_000 }))[1]).toBe(
    "the server's clock is 10 m ahead of the clock here",
  );
});

test("rights are reported for the requested keys", () => {
  expect(findMessage("rights", measurements({ key: "team-a/" }))[1]).toBe(
    'account ana: acquire, inspect on keys that begin with "team-a/"',
  );
  expect(findMessage("rights", measurements({}, { rights: [] }))).toEqual([
    "warn",
    "account ana: no rights that apply to all keys",
    expect.stringContaining("--key"),
  ]);
  expect(findMessage("rights", measurements({}, { account: "" }))[1]).toContain("the server asks for no credential");
});

test("different versions, an older server, and checks that were not made", () => {
  expect(findMessage("versions", measurements({}, { version: "9.9.9" }))).toEqual([
    "ok",
    `server 9.9.9, this program ${PACKAGE_VERSION}, protocol ${PROTOCOL_VERSION}`,
    expect.stringContaining("work together"),
  ]);
  expect(findMessage("server", measurements({ info: "this server (version 0.0.1) does not know info" }))[0]).toBe(
    "warn",
  );
  expect(findMessage("server", measurements({ isServer: false, info: "-" }))[0]).toBe("unknown");
  expect(findMessage("latency", measurements({ cycles: lockCycles("this credential may not acquire") }))[0]).toBe(
    "unknown",
  );
});

test("a slow cycle is doubtful unless the network latency explains it", () => {
  expect(findMessage("latency", measurements({ cycles: lockCycles([50, 60, 70]) }))[0]).toBe("warn");
  expect(findMessage("latency", measurements({ cycles: lockCycles([50, 60, 70]), connectMs: 40 }))[0]).toBe("ok");
});

test("text from a server cannot move the cursor", () => {
  const checks = buildReport(measurements({}, { version: "\u001b[2J", reason: "\u001b[2J", account: "\u001b[2J" }));
  expect(JSON.stringify(checks)).not.toContain("\\u001b");
});

test("a store other than a Holdfast server is reported by its driver, between reach and latency", () => {
  const storeChecks = [{ status: "warn" as const, name: "version", message: "6.0\u001b[31m", hint: "upgrade" }];
  const measuredStore = measurements({ isServer: false, storeChecks });
  expect(buildReport(measuredStore).map(({ status, name }) => `${name} ${status}`)).toEqual([
    "reachable ok",
    "version warn",
    "latency ok",
  ]);
  expect(findMessage("version", measuredStore)[1]).not.toContain("\u001b");
});

const MICROS_PER_MS = 1_800_000_000_000_000n;
const DAY = 86_400_000_000n;

/** The level, and the suggested tokenBase. */
function tokenMigration(sample: Partial<TokenSample>): readonly [string, bigint | null] {
  const { check, tokenBase } = checkTokens(
    { oldToken: MICROS_PER_MS, newToken: 1_000_000n, micros: MICROS_PER_MS, followsClock: false, ...sample },
    "redis://old",
  );
  if (tokenBase !== null) expect(check.hint).toContain(`tokenBase=${tokenBase}`);
  return [check.status, tokenBase];
}

test("a move to a store with lower tokens suggests the tokenBase, with room for the time that the move takes", () => {
  expect(tokenMigration({})).toEqual(["warn", MICROS_PER_MS + 2n * DAY]);
  expect(tokenMigration({ newToken: MICROS_PER_MS + 2n * DAY + 1_024n })).toEqual(["ok", null]);
  expect(tokenMigration({ newToken: MICROS_PER_MS + DAY }), "the old store's clock will pass it").toEqual([
    "warn",
    MICROS_PER_MS + 2n * DAY,
  ]);
  // from another ensemble, whose tokens rise with its elections
  expect(tokenMigration({ oldToken: 5_000_000n })).toEqual(["warn", 5_000_000n + 2n ** 44n]);
  expect(tokenMigration({ oldToken: 5_000_000n, newToken: 2n ** 44n + 6_000_000n })).toEqual(["ok", null]);
});

test("tokens that follow a clock need nothing, unless that clock is behind", () => {
  const clock = { followsClock: true };
  expect(tokenMigration({ ...clock, newToken: MICROS_PER_MS + 1n })).toEqual(["ok", null]);
  expect(tokenMigration({ ...clock, newToken: MICROS_PER_MS - 5_000_000n })).toEqual(["warn", null]);
  expect(tokenMigration({ ...clock, oldToken: 5_000_000n, newToken: MICROS_PER_MS })).toEqual(["ok", null]);
  // a store whose clock is half a century behind
  expect(tokenMigration({ ...clock, newToken: 1_000_000n })[1]).toBe(MICROS_PER_MS + 2n * DAY);
});

test("a paused store is a fault, reported by the server or found by a claim; rights only where they are the cause", () => {
  const message = "the store grants no new locks";
  const recoveringStore = measurements({ cycles: lockCycles(message) }, { recoveryRemainingMs: 12_000 });
  expect(findMessage("state", recoveringStore)).toEqual([
    "fail",
    "up for 2 h; it grants no new locks for up to 12 s (recovery after a restart)",
    "it waits for its clients to report the locks that they hold, then grants new ones again",
  ]);
  expect(findMessage("latency", recoveringStore)).toEqual(["unknown", `not measured: ${message}`, undefined]);
  const paused = { reason: "gracePeriod", remainingMs: 28_400 } as const;
  for (const other of [{ storeChecks: [] }, { info: "the store is not a Holdfast server", isServer: false }]) {
    const [level, says] = findMessage("state", measurements({ ...other, cycles: lockCycles(message, { paused }) }));
    expect([level, says]).toEqual([
      "fail",
      "the store grants nothing new for about 29 s (grace period after data loss)",
    ]);
  }
  const forbiddenStore = measurements({
    cycles: lockCycles("this credential may not acquire this", { isForbidden: true }),
  });
  expect(findMessage("latency", forbiddenStore)[2]).toContain("--key PREFIX");
  const load = { connections: 1, sessions: 1, held: 1, waiting: 0 };
  expect(findMessage("state", measurements({}, { load }))[1]).toContain("1 connection, 1 claim held and 0 waiting");
});
