/** What `holdfast doctor` makes of what it has measured: each finding in words, and what to do about it. */

import { shownDuration } from "../duration.ts";
import { pauseText } from "../errors.ts";
import { PROTOCOL, VERSION } from "../protocol/hello.ts";
import type { ServerInfo } from "../protocol/tools.ts";
import type { Finding } from "../spi/driver.ts";
import type { Measured } from "./doctor.ts";
import { quoted, visible } from "./output.ts";

/** What this program is. */
export const VERSIONS: { readonly client: string; readonly protocol: number } = { client: VERSION, protocol: PROTOCOL };

/** A clock further off than this is worth a word. */
const CLOCK_MS = 1_000;
/** A cycle slower than this on the same machine, and over a network. */
const SLOW_MS = 20;

export function findingsOf(measured: Measured): Finding[] {
  const { name, failure, connectMs } = measured;
  if (failure !== null) return [notReached(measured)];
  const reached: Finding = { level: "good", what: "reachable", says: `${visible(name)}, in ${ms(connectMs)}` };
  const { store, info, tokens } = measured;
  const last = [ofLatency(measured), ...(tokens === null ? [] : [tokens.finding])];
  const paused = ofPause(measured);
  if (store !== null) return [reached, ...store.map(shownSafely), ...paused, ...last];
  if (typeof info === "string") return [reached, ofSilence(measured), ...paused, ...last];
  // a relay's own state says nothing of the store behind it
  const state = info.reclaimMs > 0 ? [ofState(info)] : [ofState(info), ...paused];
  return [reached, ofVersions(info), ...state, ofClock(measured, info), ofRights(measured, info), ...last];
}

const ADVICE: Readonly<Record<string, string>> = {
  unreachable: "is `holdfast serve` running there, and does a firewall let its port through?",
  refused:
    "the server is there but does not let you in: see the message; credentials come from HOLDFAST_CREDENTIAL_FILE",
  usage: "see `holdfast help all` for the forms of --url",
};

/** Where the store is no server of ours. */
const OTHERS: Readonly<Record<string, string>> = {
  ...ADVICE,
  unreachable: "is it running there, and does a firewall let its port through?",
  refused: "the store is there but does not let you in: see the message",
};

function notReached({ failure, name }: Measured): Finding {
  const { why = "internal", message = "" } = failure ?? {};
  const isOurs = /^(holdfast|your )/.test(name);
  const advice = (isOurs ? ADVICE : OTHERS)[why];
  return { level: "bad", what: "reachable", says: message, ...(advice !== undefined && { advice }) };
}

/** What a store says of itself may hold anything. */
function shownSafely({ level, what, says, advice }: Finding): Finding {
  return { level, what, says: visible(says), ...(advice !== undefined && { advice: visible(advice) }) };
}

function ofSilence({ isServer, info, name }: Measured): Finding {
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
    says: `${visible(name)} is no Holdfast server: versions, clock, rights and events are not known here`,
  };
}

function ofVersions({ version, protocol, store }: ServerInfo): Finding {
  const same = version === VERSION;
  const behind = store === "table" ? "" : `, in front of ${visible(store)}`;
  const says = `server ${visible(version)}, this program ${VERSION}, protocol ${protocol}${behind}`;
  if (same) return { level: "good", what: "versions", says };
  return {
    level: "good",
    what: "versions",
    says,
    advice: "different versions work together; each uses what both know",
  };
}

function ofState({ upMs, reclaimMs, why, load }: ServerInfo): Finding {
  const busy =
    load === undefined
      ? ""
      : `, ${counted(load.connections, "connection")}, ${counted(load.held, "claim")} held and ${load.waiting} waiting`;
  const says = `up for ${shownDuration(upMs)}${busy}`;
  if (reclaimMs > 0) {
    return {
      level: "bad",
      what: "state",
      says: `${says}; it grants nothing new for up to ${shownDuration(reclaimMs)} (recovery after a restart)`,
      advice: "it waits for its clients to tell what they hold, and grants locks again by itself",
    };
  }
  if (why === "") return { level: "good", what: "state", says: `${says}; it grants locks` };
  return { level: "bad", what: "state", says: `${says}; it grants nothing: ${visible(why)}` };
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}

/** Where no server of ours tells of its state: a claim was tried. */
function ofPause({ cycles }: Measured): Finding[] {
  if (cycles.paused === null) return [];
  const advice = "it grants locks again by itself; a wait goes on until then";
  return [{ level: "bad", what: "state", says: pauseText(cycles.paused), advice }];
}

function ofClock({ wallMs, tripMs }: Measured, info: ServerInfo): Finding {
  const off = info.wallMs - wallMs;
  const sure = Math.abs(off) - tripMs / 2;
  const way = off < 0 ? "behind" : "ahead of";
  if (sure < CLOCK_MS) {
    return { level: "good", what: "clocks", says: `the server's is within ${ms(Math.abs(off) + tripMs / 2)} of ours` };
  }
  return {
    level: "doubtful",
    what: "clocks",
    says: `the server's is ${shownDuration(Math.abs(off))} ${way} ours`,
    advice:
      "no lock depends on it: leases are counted by intervals. Tokens begin with the server's time: let NTP set it",
  };
}

function ofRights({ key }: Measured, { account, rights }: ServerInfo): Finding {
  const where = key === "" ? "every key" : `keys that begin with ${quoted(key)}`;
  const who = account === "" ? "the server asks for no credential" : `account ${visible(account)}`;
  if (rights.length > 0) {
    return { level: "good", what: "rights", says: `${who}: ${rights.join(", ")} on ${where}` };
  }
  return {
    level: "doubtful",
    what: "rights",
    says: `${who}: nothing is allowed on ${where}`,
    advice: "rights belong to prefixes: ask for one of yours with --key PREFIX",
  };
}

function ofLatency({ cycles: { cyclesMs, isForbidden }, connectMs }: Measured): Finding {
  if (typeof cyclesMs === "string") {
    const finding: Finding = { level: "unknown", what: "latency", says: `not measured: ${cyclesMs}` };
    if (!isForbidden) return finding;
    const advice = "measured on a key below --key PREFIX, which this credential must be allowed to acquire";
    return { ...finding, advice };
  }
  const sorted = [...cyclesMs].sort((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)] ?? 0;
  const longest = sorted.at(-1) ?? 0;
  const says = `acquire and release take ${ms(median)} (the slowest of ${sorted.length}: ${ms(longest)})`;
  if (median < SLOW_MS || median < 2.5 * connectMs) return { level: "good", what: "latency", says };
  return {
    level: "doubtful",
    what: "latency",
    says,
    advice: "that is two round trips: is the server far away, or its processor busy?",
  };
}

/** Short times with the digits that matter. */
function ms(value: number): string {
  return value < 10 ? `${value.toFixed(2)} ms` : shownDuration(value);
}
