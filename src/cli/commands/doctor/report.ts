/** What `holdfast doctor` makes of what it has measured: each finding in words, and what to do about it. */

import { describePause } from "../../../errors.ts";
import type { ServerInfo } from "../../../protocol/admin-frames.ts";
import { PACKAGE_VERSION, PROTOCOL_VERSION } from "../../../protocol/handshake.ts";
import type { Check } from "../../../spi/driver.ts";
import { formatDuration } from "../../../util/duration.ts";
import { escapeControl, quoteKey } from "../../output.ts";
import type { Measurements } from "./doctor.ts";

/** What this program is. */
export const VERSIONS: { readonly client: string; readonly protocol: number } = {
  client: PACKAGE_VERSION,
  protocol: PROTOCOL_VERSION,
};

/** A clock further off than this is worth a word. */
const MAX_CLOCK_OFFSET_MS = 1_000;
/** A cycle slower than this on the same machine, and over a network. */
const SLOW_CYCLE_MS = 20;

export function buildReport(measurements: Measurements): Check[] {
  const { name, failure, connectMs } = measurements;
  if (failure !== null) return [reportUnreachable(measurements)];
  const reached: Check = {
    level: "good",
    what: "reachable",
    says: `${escapeControl(name)}, in ${formatMs(connectMs)}`,
  };
  const { storeChecks, info, tokenComparison } = measurements;
  const finalChecks = [checkLatency(measurements), ...(tokenComparison === null ? [] : [tokenComparison.check])];
  const paused = checkPause(measurements);
  if (storeChecks !== null) return [reached, ...storeChecks.map(escapeCheck), ...paused, ...finalChecks];
  if (typeof info === "string") return [reached, reportUnknownServer(measurements), ...paused, ...finalChecks];
  // a relay's own state says nothing of the store behind it
  const state = info.reclaimMs > 0 ? [checkState(info)] : [checkState(info), ...paused];
  return [
    reached,
    checkVersions(info),
    ...state,
    checkClock(measurements, info),
    checkPermissions(measurements, info),
    ...finalChecks,
  ];
}

const ADVICE: Readonly<Record<string, string>> = {
  unreachable: "is `holdfast serve` running there, and does a firewall let its port through?",
  refused:
    "the server is there but does not let you in: see the message; credentials come from HOLDFAST_CREDENTIAL_FILE",
  usage: "see `holdfast help all` for the forms of --url",
};

/** Where the store is no server of ours. */
const OTHER_STORE_ADVICE: Readonly<Record<string, string>> = {
  ...ADVICE,
  unreachable: "is it running there, and does a firewall let its port through?",
  refused: "the store is there but does not let you in: see the message",
};

function reportUnreachable({ failure, name }: Measurements): Check {
  const { kind = "internal", message = "" } = failure ?? {};
  const isOurs = /^(holdfast|your )/.test(name);
  const advice = (isOurs ? ADVICE : OTHER_STORE_ADVICE)[kind];
  return { level: "bad", what: "reachable", says: message, ...(advice !== undefined && { advice }) };
}

/** What a store says of itself may hold anything. */
function escapeCheck({ level, what, says, advice }: Check): Check {
  return { level, what, says: escapeControl(says), ...(advice !== undefined && { advice: escapeControl(advice) }) };
}

function reportUnknownServer({ isServer, info, name }: Measurements): Check {
  if (isServer) {
    return {
      level: "doubtful",
      what: "server",
      says: String(info),
      advice: "an older server works all the same; show, watch and doctor tell more when it is upgraded",
    };
  }
  return {
    level: "unknown",
    what: "server",
    says: `${escapeControl(name)} is no Holdfast server: versions, clock, rights and events are not known here`,
  };
}

function checkVersions({ version, protocol, store }: ServerInfo): Check {
  const isSame = version === PACKAGE_VERSION;
  const storeText = store === "table" ? "" : `, in front of ${escapeControl(store)}`;
  const says = `server ${escapeControl(version)}, this program ${PACKAGE_VERSION}, protocol ${protocol}${storeText}`;
  if (isSame) return { level: "good", what: "versions", says };
  return {
    level: "good",
    what: "versions",
    says,
    advice: "different versions work together; each uses what both know",
  };
}

function checkState({ upMs, reclaimMs, why, load }: ServerInfo): Check {
  const loadText =
    load === undefined
      ? ""
      : `, ${formatCount(load.connections, "connection")}, ${formatCount(load.held, "claim")} held and ${load.waiting} waiting`;
  const says = `up for ${formatDuration(upMs)}${loadText}`;
  if (reclaimMs > 0) {
    return {
      level: "bad",
      what: "state",
      says: `${says}; it grants nothing new for up to ${formatDuration(reclaimMs)} (recovery after a restart)`,
      advice: "it waits for its clients to tell what they hold, and grants locks again by itself",
    };
  }
  if (why === "") return { level: "good", what: "state", says: `${says}; it grants locks` };
  return { level: "bad", what: "state", says: `${says}; it grants nothing: ${escapeControl(why)}` };
}

function formatCount(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}

/** Where no server of ours tells of its state: a claim was tried. */
function checkPause({ cycles }: Measurements): Check[] {
  if (cycles.paused === null) return [];
  const advice = "it grants locks again by itself; a wait goes on until then";
  return [{ level: "bad", what: "state", says: describePause(cycles.paused), advice }];
}

function checkClock({ wallMs, roundTripMs }: Measurements, info: ServerInfo): Check {
  const offsetMs = info.wallMs - wallMs;
  const minOffsetMs = Math.abs(offsetMs) - roundTripMs / 2;
  const direction = offsetMs < 0 ? "behind" : "ahead of";
  if (minOffsetMs < MAX_CLOCK_OFFSET_MS) {
    return {
      level: "good",
      what: "clocks",
      says: `the server's is within ${formatMs(Math.abs(offsetMs) + roundTripMs / 2)} of ours`,
    };
  }
  return {
    level: "doubtful",
    what: "clocks",
    says: `the server's is ${formatDuration(Math.abs(offsetMs))} ${direction} ours`,
    advice:
      "no lock depends on it: leases are counted by intervals. Tokens begin with the server's time: let NTP set it",
  };
}

function checkPermissions({ key }: Measurements, { account, rights }: ServerInfo): Check {
  const keysText = key === "" ? "every key" : `keys that begin with ${quoteKey(key)}`;
  const accountText = account === "" ? "the server asks for no credential" : `account ${escapeControl(account)}`;
  if (rights.length > 0) {
    return { level: "good", what: "rights", says: `${accountText}: ${rights.join(", ")} on ${keysText}` };
  }
  return {
    level: "doubtful",
    what: "rights",
    says: `${accountText}: nothing is allowed on ${keysText}`,
    advice: "rights belong to prefixes: ask for one of yours with --key PREFIX",
  };
}

function checkLatency({ cycles: { cyclesMs, isForbidden }, connectMs }: Measurements): Check {
  if (typeof cyclesMs === "string") {
    const finding: Check = { level: "unknown", what: "latency", says: `not measured: ${cyclesMs}` };
    if (!isForbidden) return finding;
    const advice = "measured on a key below --key PREFIX, which this credential must be allowed to acquire";
    return { ...finding, advice };
  }
  const sorted = [...cyclesMs].sort((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)] ?? 0;
  const longest = sorted.at(-1) ?? 0;
  const says = `acquire and release take ${formatMs(median)} (the slowest of ${sorted.length}: ${formatMs(longest)})`;
  if (median < SLOW_CYCLE_MS || median < 2.5 * connectMs) return { level: "good", what: "latency", says };
  return {
    level: "doubtful",
    what: "latency",
    says,
    advice: "that is two round trips: is the server far away, or its processor busy?",
  };
}

/** Short times with the digits that matter. */
function formatMs(value: number): string {
  return value < 10 ? `${value.toFixed(2)} ms` : formatDuration(value);
}
