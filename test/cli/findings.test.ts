import { expect, test } from "vitest";
import type { Cycles, Measured } from "../../src/cli/doctor.ts";
import { CommandError } from "../../src/cli/failure.ts";
import { findingsOf } from "../../src/cli/findings.ts";
import type { TokensMet } from "../../src/cli/token-base.ts";
import { tokenFinding } from "../../src/cli/token-base.ts";
import { PROTOCOL, VERSION } from "../../src/protocol/hello.ts";
import type { ServerInfo } from "../../src/protocol/tools.ts";

const INFO: ServerInfo = {
  version: VERSION,
  protocol: PROTOCOL,
  start: "k3vq7m2a",
  upMs: 7_300_000,
  wallMs: 1_000_000,
  reclaimMs: 0,
  why: "",
  store: "table",
  account: "ana",
  rights: ["acquire", "inspect"],
};

function measured(change: Partial<Measured> = {}, info: Partial<ServerInfo> = {}): Measured {
  return {
    name: "holdfast://locks:7420",
    failure: null,
    connectMs: 3,
    isServer: true,
    info: { ...INFO, ...info },
    store: null,
    wallMs: 1_000_010,
    tripMs: 2,
    key: "",
    cycles: cycles([0.5, 0.4, 9]),
    tokens: null,
    ...change,
  };
}

function cycles(cyclesMs: Cycles["cyclesMs"], more: Partial<Cycles> = {}): Cycles {
  return { cyclesMs, paused: null, isForbidden: false, ...more };
}

/** What is said of one thing: its level, its words, the advice. */
function said(what: string, it: Measured): readonly (string | undefined)[] {
  const found = findingsOf(it).find((finding) => finding.what === what);
  return [found?.level, found?.says, found?.advice];
}

test("a healthy server: everything good, nothing to be done", () => {
  const findings = findingsOf(measured());
  expect(findings.map(({ level, what }) => `${what} ${level}`)).toEqual([
    "reachable good",
    "versions good",
    "state good",
    "clocks good",
    "rights good",
    "latency good",
  ]);
  expect(findings.some(({ advice }) => advice !== undefined)).toBe(false);
  expect(said("latency", measured())).toEqual([
    "good",
    "acquire and release take 0.50 ms (the slowest of 3: 9.00 ms)",
    undefined,
  ]);
});

test("a server that is not reached, or refuses, is told with what to look at", () => {
  const failure = new CommandError("unreachable", "holdfast://locks:7420 refused the connection");
  expect(findingsOf(measured({ failure }))).toEqual([
    { level: "bad", what: "reachable", says: failure.message, advice: expect.stringContaining("holdfast serve") },
  ]);
  const refused = new CommandError("refused", "no valid credential was given");
  expect(said("reachable", measured({ failure: refused }))[2]).toContain("HOLDFAST_CREDENTIAL_FILE");
  const name = "zookeeper://zk:2181";
  for (const one of [failure, refused]) {
    const advice = said("reachable", measured({ failure: one, name }))[2];
    expect(advice, "where no server of ours is").not.toMatch(/holdfast serve|HOLDFAST_/);
    expect(advice).toMatch(/running there|does not let you in/);
  }
});

test("a server that cannot grant says why", () => {
  expect(said("state", measured({}, { why: "the state cannot be written" }))).toEqual([
    "bad",
    "up for 2 h; it grants nothing: the state cannot be written",
    undefined,
  ]);
  const load = { connections: 3, sessions: 2, held: 5, waiting: 1 };
  expect(said("state", measured({}, { load }))[1]).toContain("3 connections, 5 claims held and 1 waiting");
});

test("clocks that differ are doubtful only beyond what the round trip explains", () => {
  expect(said("clocks", measured({ wallMs: 1_000_900, tripMs: 2 }))[0]).toBe("good");
  expect(said("clocks", measured({ wallMs: 1_003_000, tripMs: 4_100 }))[0]).toBe("good");
  expect(said("clocks", measured({ wallMs: 1_005_000 }))).toEqual([
    "doubtful",
    "the server's is 5 s behind ours",
    expect.stringContaining("NTP"),
  ]);
  expect(said("clocks", measured({ wallMs: 400_000 }))[1]).toBe("the server's is 10 m ahead of ours");
});

test("rights are told for the keys that were asked for", () => {
  expect(said("rights", measured({ key: "team-a/" }))[1]).toBe(
    'account ana: acquire, inspect on keys that begin with "team-a/"',
  );
  expect(said("rights", measured({}, { rights: [] }))).toEqual([
    "doubtful",
    "account ana: nothing is allowed on every key",
    expect.stringContaining("--key"),
  ]);
  expect(said("rights", measured({}, { account: "" }))[1]).toContain("the server asks for no credential");
});

test("versions that differ, an older server, another store, and what was not measured", () => {
  expect(said("versions", measured({}, { version: "9.9.9", store: "redis" }))).toEqual([
    "good",
    `server 9.9.9, this program ${VERSION}, protocol ${PROTOCOL}, in front of redis`,
    expect.stringContaining("work together"),
  ]);
  expect(said("server", measured({ info: "this server (version 0.0.1) does not know info" }))[0]).toBe("doubtful");
  expect(said("server", measured({ isServer: false, info: "-" }))[0]).toBe("unknown");
  expect(said("latency", measured({ cycles: cycles("this credential may not acquire") }))[0]).toBe("unknown");
});

test("a slow cycle is doubtful unless the way there explains it", () => {
  expect(said("latency", measured({ cycles: cycles([50, 60, 70]) }))[0]).toBe("doubtful");
  expect(said("latency", measured({ cycles: cycles([50, 60, 70]), connectMs: 40 }))[0]).toBe("good");
});

test("what a server says of itself cannot move the cursor", () => {
  const findings = findingsOf(measured({}, { version: "\u001b[2J", why: "\u001b[2J", account: "\u001b[2J" }));
  expect(JSON.stringify(findings)).not.toContain("\\u001b");
});

test("a store that is no server of ours is told of by its driver, between reach and latency", () => {
  const store = [{ level: "doubtful" as const, what: "version", says: "6.0\u001b[31m", advice: "upgrade" }];
  const measuredStore = measured({ isServer: false, store });
  expect(findingsOf(measuredStore).map(({ level, what }) => `${what} ${level}`)).toEqual([
    "reachable good",
    "version doubtful",
    "latency good",
  ]);
  expect(said("version", measuredStore)[1]).not.toContain("\u001b");
});

const MICROS = 1_800_000_000_000_000n;
const DAY = 86_400_000_000n;

/** The level, and the tokenBase that is asked for. */
function base(met: Partial<TokensMet>): readonly [string, bigint | null] {
  const { finding, tokenBase } = tokenFinding(
    { old: MICROS, fresh: 1_000_000n, micros: MICROS, followsClock: false, ...met },
    "redis://old",
  );
  if (tokenBase !== null) expect(finding.advice).toContain(`tokenBase=${tokenBase}`);
  return [finding.level, tokenBase];
}

test("whoever moves to a store of lower tokens is told the tokenBase, with room for the time that a move takes", () => {
  expect(base({})).toEqual(["doubtful", MICROS + 2n * DAY]);
  expect(base({ fresh: MICROS + 2n * DAY + 1_024n })).toEqual(["good", null]);
  expect(base({ fresh: MICROS + DAY }), "the old store's clock will pass it").toEqual(["doubtful", MICROS + 2n * DAY]);
  // from another ensemble, whose tokens rise with its elections
  expect(base({ old: 5_000_000n })).toEqual(["doubtful", 5_000_000n + 2n ** 44n]);
  expect(base({ old: 5_000_000n, fresh: 2n ** 44n + 6_000_000n })).toEqual(["good", null]);
});

test("tokens that follow a clock need nothing, unless that clock is behind", () => {
  const clock = { followsClock: true };
  expect(base({ ...clock, fresh: MICROS + 1n })).toEqual(["good", null]);
  expect(base({ ...clock, fresh: MICROS - 5_000_000n })).toEqual(["doubtful", null]);
  expect(base({ ...clock, old: 5_000_000n, fresh: MICROS })).toEqual(["good", null]);
  // a lock server in front of a store whose tokens follow no clock
  expect(base({ ...clock, fresh: 1_000_000n })[1]).toBe(MICROS + 2n * DAY);
});

test("a store that grants nothing new is a fault, told of by our server or seen by a claim; rights only where they are the cause", () => {
  const nothing = "it grants nothing now";
  const ours = measured({ cycles: cycles(nothing) }, { reclaimMs: 12_000 });
  expect(said("state", ours)).toEqual([
    "bad",
    "up for 2 h; it grants nothing new for up to 12 s (recovery after a restart)",
    "it waits for its clients to tell what they hold, and grants locks again by itself",
  ]);
  expect(said("latency", ours)).toEqual(["unknown", `not measured: ${nothing}`, undefined]);
  const paused = { reason: "gracePeriod", remainingMs: 28_400 } as const;
  for (const other of [{ store: [] }, { info: "it is no Holdfast server", isServer: false }]) {
    const [level, says] = said("state", measured({ ...other, cycles: cycles(nothing, { paused }) }));
    expect([level, says]).toEqual([
      "bad",
      "the store grants nothing new for about 29 s (grace period after data loss)",
    ]);
  }
  const mayNot = measured({ cycles: cycles("this credential may not acquire this", { isForbidden: true }) });
  expect(said("latency", mayNot)[2]).toContain("--key PREFIX");
  const load = { connections: 1, sessions: 1, held: 1, waiting: 0 };
  expect(said("state", measured({}, { load }))[1]).toContain("1 connection, 1 claim held and 0 waiting");
});
