/** `holdfast ls [PREFIX]`: who holds and who waits. */

import { shownDuration } from "../duration.ts";
import type { ClaimView, Hold } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import { jsonLine, print, say, visible } from "./output.ts";
import type { Column, Screen } from "./screen.ts";
import { cutLabel, ownScreen, table } from "./screen.ts";
import { openStore } from "./store.ts";
import { claimsOf, MOST_LISTED } from "./tools.ts";

/** Flags of `ls`. */
export interface ListFlags {
  readonly url?: string;
  readonly json?: boolean;
}

/** Lists the claims on keys that start with prefix. With --json one object a line. */
export async function list(prefix: string | undefined, flags: ListFlags): Promise<number> {
  const store = await openStore(flags.url);
  try {
    const views = await claimsOf(store, prefix ?? "");
    const ahead = aheadOf(views);
    if (flags.json === true) {
      for (const [at, view] of views.entries()) print(jsonLine(recordOf(view, ahead[at] as number)));
    } else for (const line of listing(views, ownScreen())) print(line);
    if (views.length >= MOST_LISTED) say(`these are the first ${MOST_LISTED}; a prefix tells which ones are meant`);
    return 0;
  } finally {
    await store.locks.close();
  }
}

const KEY: Column = { head: "KEY", least: 12, cutTo: 16 };
const STATE: Column = {
  head: "STATE",
  least: 7,
  colour: (cell) => (cell.startsWith("waiting") ? "yellow" : "green"),
};
const SINCE: Column = { head: "SINCE", least: 6, side: "left" };
const LEASE: Column = { head: "LEASE", least: 7, side: "left" };
const AHEAD: Column = { head: "AHEAD", least: 5, side: "left" };
const TOKEN: Column = { head: "TOKEN", least: 16 };
const HOLDER: Column = { head: "HOLDER", cutTo: 16, cut: cutLabel };

/** Below so many columns tokens are left to --json and `show`. */
const WIDE_COLUMNS = 110;

/** The claims as a table, those of a key in the order of its line. */
export function listing(views: readonly ClaimView[], screen: Screen): string[] {
  const isWide = screen.columns === null || screen.columns >= WIDE_COLUMNS;
  const columns = [KEY, STATE, SINCE, LEASE, AHEAD, ...(isWide ? [TOKEN] : []), HOLDER];
  const ahead = aheadOf(views);
  const rows = views.map((view, at) => {
    const { holds, answer, label } = view;
    const isHeld = answer.state === "held";
    return [
      holds.map(({ key }) => visible(key)).join(", "),
      `${answer.state}${modeSuffix(holds[0])}`,
      shownDuration(sinceOf(view)),
      leaseOf(view),
      isHeld ? "" : String(ahead[at]),
      ...(isWide ? [isHeld ? String(answer.token) : ""] : []),
      visible(label),
    ];
  });
  return table(columns, rows, screen);
}

/** How long it has been held; of a waiting claim, how long it has waited. */
export function sinceOf({ ageMs, heldMs }: ClaimView): number {
  return heldMs ?? ageMs;
}

/** What is left of the lease, in words. */
export function leaseOf({ answer, ttlMs }: ClaimView): string {
  if (ttlMs === "session") return "session";
  return answer.state === "none" ? "" : shownDuration(answer.ttlMs);
}

/** For each of these claims, how many stand before it on any of its keys. */
export function aheadOf(views: readonly ClaimView[]): number[] {
  const standing = new Map<string, number>();
  return views.map(({ holds }) => {
    let most = 0;
    for (const { key } of holds) {
      const before = standing.get(key) ?? 0;
      most = Math.max(most, before);
      standing.set(key, before + 1);
    }
    return most;
  });
}

/** "exclusive", "shared", or how many of how many permits. */
function modeOf({ permits, limit }: Hold): string {
  if (limit < ALL_PERMITS) return `${permits}/${limit}`;
  return permits < ALL_PERMITS ? "shared" : "exclusive";
}

/** Behind a state, of what is not exclusive. */
export function modeSuffix(hold: Hold): string {
  const mode = modeOf(hold);
  return mode === "exclusive" ? "" : ` ${mode}`;
}

/** A claim for --json. */
export function recordOf(view: ClaimView, ahead: number): object {
  const { holds, answer, ageMs, ttlMs, label, tag } = view;
  return {
    keys: holds.map(({ key }) => key),
    state: answer.state,
    mode: modeOf(holds[0]),
    ageMs: Math.floor(ageMs),
    sinceMs: Math.floor(sinceOf(view)),
    ttlMs,
    leftMs: ttlMs === "session" || answer.state === "none" ? null : Math.floor(answer.ttlMs),
    token: answer.state === "held" ? answer.token : null,
    tokens: answer.state === "held" ? answer.tokens : null,
    ahead: answer.state === "held" ? null : ahead,
    label,
    tag,
  };
}
