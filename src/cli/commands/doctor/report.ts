/** Turns the measurements of `holdfast doctor` into checks, with advice where something is wrong. */

import { describePause } from "../../../errors.ts";
import type { ServerInfo } from "../../../protocol/admin-frames.ts";
import { PACKAGE_VERSION, PROTOCOL_VERSION } from "../../../protocol/handshake.ts";
import type { Check, Pause } from "../../../spi/driver.ts";
import { formatDuration } from "../../../util/duration.ts";
import type { CommandError } from "../../errors.ts";
import { escapeControl, quoteKey } from "../../output.ts";
import type { TokenComparison } from "./token-migration.ts";

/** The results of all measurements. */
export interface Measurements {
  /** The name of the store in messages. */
  readonly name: string;
  /** Why the store could not be used at all; null: it could. */
  readonly failure: CommandError | null;
  /** The time until the store was open. */
  readonly connectMs: number;
  /** Is the store a Holdfast server? */
  readonly isServer: boolean;
  /** What the server reports about itself; a string: why there is no report. */
  readonly info: ServerInfo | string;
  /** The checks of the store's driver; null: the driver has none. */
  readonly storeChecks: readonly Check[] | null;
  /** Our wall clock in the middle of the info call, and the duration of that call. */
  readonly wallMs: number;
  readonly roundTripMs: number;
  /** The prefix whose rights were checked. */
  readonly key: string;
  readonly cycles: CycleTimes;
  /** The comparison with the store of --from; null: --from was not given. */
  readonly tokenComparison: TokenComparison | null;
}

/** The results of acquiring and releasing a key that no other client uses. */
export interface CycleTimes {
  /** The duration of each cycle; a string: why it could not be measured. */
  readonly cyclesMs: readonly number[] | string;
  /** The store grants no new locks; null: it does. */
  readonly paused: Pause | null;
  /** The credential does not have the right to acquire the key. */
  readonly isForbidden: boolean;
  /** Locks cannot be acquired or released at all: the store reports an error, or does not answer. */
  readonly isFailing: boolean;
}

/** The versions of this program. */
export const VERSIONS: { readonly client: string; readonly protocol: number } = {
  client: PACKAGE_VERSION,
  protocol: PROTOCOL_VERSION,
};

/** A larger difference between the clocks is reported. */
const MAX_CLOCK_OFFSET_MS = 1_000;
/** A slower cycle is reported, unless the network explains it. */
const SLOW_CYCLE_MS = 20;

export function buildReport(measurements: Measurements): Check[] {
  const { name, failure, connectMs } = measurements;
  if (failure !== null) return [reportUnreachable(measurements)];
  const reached: Check = {
    status: "ok",
    name: "reachable",
    message: `${escapeControl(name)}, in ${formatMs(connectMs)}`,
  };
  const { storeChecks, info, tokenComparison } = measurements;
  const finalChecks = [checkLatency(measurements), ...(tokenComparison === null ? [] : [tokenComparison.check])];
  const paused = checkPause(measurements);
  if (storeChecks !== null) return [reached, ...storeChecks.map(escapeCheck), ...paused, ...finalChecks];
  if (typeof info === "string") return [reached, reportUnknownServer(measurements), ...paused, ...finalChecks];
  return [
    reached,
    checkVersions(info),
    checkState(info),
    checkClock(measurements, info),
    checkPermissions(measurements, info),
    ...finalChecks,
  ];
}

const ADVICE: Readonly<Record<string, string>> = {
  unreachable: "check that `holdfast serve` is running there, and that no firewall blocks its port",
  refused: "the server refuses you: see the message; HOLDFAST_CREDENTIAL_FILE names the file with the credential",
  usage: "see the manual page, holdfast(1), for the forms of --url",
};

/** For a store that is not a Holdfast server. */
const OTHER_STORE_ADVICE: Readonly<Record<string, string>> = {
  ...ADVICE,
  unreachable: "check that the store is running there, and that no firewall blocks its port",
  refused: "the store refuses you: see the message",
};

function reportUnreachable({ failure, name }: Measurements): Check {
  const { kind = "internal", message = "" } = failure ?? {};
  const isHoldfastServer = /^(holdfast|your )/.test(name);
  // what is wrong with a module is in the message
  const hasAdvice = kind !== "usage" || !name.startsWith("the driver ");
  const hint = hasAdvice ? (isHoldfastServer ? ADVICE : OTHER_STORE_ADVICE)[kind] : undefined;
  return { status: "fail", name: "reachable", message, ...(hint !== undefined && { hint }) };
}

/** Texts of the store may contain control characters. */
function escapeCheck({ status, name, message, hint }: Check): Check {
  return { status, name, message: escapeControl(message), ...(hint !== undefined && { hint: escapeControl(hint) }) };
}

function reportUnknownServer({ isServer, info, name }: Measurements): Check {
  if (isServer) {
    return {
      status: "warn",
      name: "server",
      message: String(info),
      hint: "an older server works, too; after an upgrade show, watch and doctor report more",
    };
  }
  return {
    status: "unknown",
    name: "server",
    message: `${escapeControl(name)} is not a Holdfast server: its version, clock, rights and events are unknown`,
  };
}

function checkVersions({ version, protocol }: ServerInfo): Check {
  const isSame = version === PACKAGE_VERSION;
  const message = `server ${escapeControl(version)}, this program ${PACKAGE_VERSION}, protocol ${protocol}`;
  if (isSame) return { status: "ok", name: "versions", message };
  return {
    status: "ok",
    name: "versions",
    message,
    hint: "different versions work together; they use the features that both have",
  };
}

function checkState({ upMs, recoveryRemainingMs, reason, load }: ServerInfo): Check {
  const loadText =
    load === undefined
      ? ""
      : `, ${formatCount(load.connections, "connection")}, ${formatCount(load.held, "claim")} held and ${load.waiting} waiting`;
  const stateText = `up for ${formatDuration(upMs)}${loadText}`;
  if (recoveryRemainingMs > 0) {
    return {
      status: "fail",
      name: "state",
      message: `${stateText}; it grants no new locks for up to ${formatDuration(recoveryRemainingMs)} (recovery after a restart)`,
      hint: "it waits for its clients to report the locks that they hold, then grants new ones again",
    };
  }
  if (reason === "") return { status: "ok", name: "state", message: `${stateText}; it grants locks` };
  return { status: "fail", name: "state", message: `${stateText}; it grants no locks: ${escapeControl(reason)}` };
}

function formatCount(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** The state of a store that does not report it: a trial claim has shown the pause. */
function checkPause({ cycles }: Measurements): Check[] {
  if (cycles.paused === null) return [];
  const hint = "it will grant locks again without action; waiting requests stay in the queue";
  return [{ status: "fail", name: "state", message: describePause(cycles.paused), hint }];
}

function checkClock({ wallMs, roundTripMs }: Measurements, info: ServerInfo): Check {
  const offsetMs = info.wallMs - wallMs;
  const minOffsetMs = Math.abs(offsetMs) - roundTripMs / 2;
  const direction = offsetMs < 0 ? "behind" : "ahead of";
  if (minOffsetMs < MAX_CLOCK_OFFSET_MS) {
    return {
      status: "ok",
      name: "clocks",
      message: `the server's clock is within ${formatMs(Math.abs(offsetMs) + roundTripMs / 2)} of the clock here`,
    };
  }
  return {
    status: "warn",
    name: "clocks",
    message: `the server's clock is ${formatDuration(Math.abs(offsetMs))} ${direction} the clock here`,
    hint: "no lock depends on it, since leases are measured as intervals; but tokens start from the server's time: use NTP",
  };
}

function checkPermissions({ key }: Measurements, { account, rights }: ServerInfo): Check {
  const keysText = key === "" ? "all keys" : `keys that begin with ${quoteKey(key)}`;
  const accountText = account === "" ? "the server asks for no credential" : `account ${escapeControl(account)}`;
  if (rights.length > 0) {
    return { status: "ok", name: "rights", message: `${accountText}: ${rights.join(", ")} on ${keysText}` };
  }
  return {
    status: "warn",
    name: "rights",
    message: `${accountText}: no rights ${key === "" ? "that apply to" : "on"} ${keysText}`,
    hint: "rights belong to prefixes: check one of yours with --key PREFIX",
  };
}

function checkLatency({ cycles: { cyclesMs, isForbidden, isFailing }, connectMs }: Measurements): Check {
  if (typeof cyclesMs === "string") {
    if (isFailing)
      return { status: "fail", name: "locks", message: `none can be acquired: ${escapeControl(cyclesMs)}` };
    const check: Check = { status: "unknown", name: "latency", message: `not measured: ${cyclesMs}` };
    if (!isForbidden) return check;
    const hint = "the test acquires a key: pass a --key PREFIX on which this credential has the right to acquire";
    return { ...check, hint };
  }
  const sorted = [...cyclesMs].sort((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)] ?? 0;
  const longest = sorted.at(-1) ?? 0;
  const message = `acquire and release take ${formatMs(median)} (the slowest of ${sorted.length}: ${formatMs(longest)})`;
  if (median < SLOW_CYCLE_MS || median < 2.5 * connectMs) return { status: "ok", name: "latency", message };
  return {
    status: "warn",
    name: "latency",
    message,
    hint: "this takes two round trips: the server may be far away, or its processor busy",
  };
}

/** Times below 10 ms with two decimals. */
function formatMs(value: number): string {
  return value < 10 ? `${value.toFixed(2)} ms` : formatDuration(value);
}
