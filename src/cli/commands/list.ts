/** `holdfast ls [PREFIX]`: who holds and who waits. */

import type { ClaimView, LockSpec } from "../../spi/driver.ts";
import { ALL_PERMITS } from "../../spi/driver.ts";
import { formatDuration } from "../../util/duration.ts";
import { listClaims, MAX_LISTED } from "../open-admin.ts";
import { openStore } from "../open-store.ts";
import { escapeControl, formatJsonLine, info, printLine } from "../output.ts";
import type { Column, Terminal } from "../terminal-table.ts";
import { detectTerminal, renderTable, truncateLabel } from "../terminal-table.ts";

/** Flags of `ls`. */
export interface ListFlags {
  readonly url?: string;
  readonly json?: boolean;
}

/** Lists the claims on keys that start with prefix. With --json one object a line. */
export async function listCommand(prefix: string | undefined, flags: ListFlags): Promise<number> {
  const store = await openStore(flags.url);
  try {
    const views = await listClaims(store, prefix ?? "");
    const ahead = countAhead(views);
    if (flags.json === true) {
      for (const [index, view] of views.entries())
        printLine(formatJsonLine(toJsonRecord(view, ahead[index] as number)));
    } else for (const line of formatClaims(views, detectTerminal())) printLine(line);
    if (views.length >= MAX_LISTED) info(`these are the first ${MAX_LISTED}; a prefix tells which ones are meant`);
    return 0;
  } finally {
    await store.locks.close();
  }
}

const KEY: Column = { title: "KEY", minWidth: 12, truncateTo: 16 };
const STATE: Column = {
  title: "STATE",
  minWidth: 7,
  color: (cell) => (cell.startsWith("waiting") ? "yellow" : "green"),
};
const SINCE: Column = { title: "SINCE", minWidth: 6, side: "left" };
const LEASE: Column = { title: "LEASE", minWidth: 7, side: "left" };
const AHEAD: Column = { title: "AHEAD", minWidth: 5, side: "left" };
const TOKEN: Column = { title: "TOKEN", minWidth: 16 };
const HOLDER: Column = { title: "HOLDER", truncateTo: 16, truncate: truncateLabel };

/** Below so many columns tokens are left to --json and `show`. */
const WIDE_COLUMNS = 110;

/** The claims as a table, those of a key in the order of its line. */
export function formatClaims(views: readonly ClaimView[], terminal: Terminal): string[] {
  const isWide = terminal.columns === null || terminal.columns >= WIDE_COLUMNS;
  const columns = [KEY, STATE, SINCE, LEASE, AHEAD, ...(isWide ? [TOKEN] : []), HOLDER];
  const ahead = countAhead(views);
  const rows = views.map((view, index) => {
    const { holds, answer, label } = view;
    const isHeld = answer.state === "held";
    return [
      holds.map(({ key }) => escapeControl(key)).join(", "),
      `${answer.state}${formatModeSuffix(holds[0])}`,
      formatDuration(sinceMs(view)),
      formatLease(view),
      isHeld ? "" : String(ahead[index]),
      ...(isWide ? [isHeld ? String(answer.token) : ""] : []),
      escapeControl(label),
    ];
  });
  return renderTable(columns, rows, terminal);
}

/** How long it has been held; of a waiting claim, how long it has waited. */
export function sinceMs({ ageMs, heldMs }: ClaimView): number {
  return heldMs ?? ageMs;
}

/** What is left of the lease, in words. */
export function formatLease({ answer, ttlMs }: ClaimView): string {
  if (ttlMs === "session") return "session";
  return answer.state === "none" ? "" : formatDuration(answer.ttlMs);
}

/** For each of these claims, how many stand before it on any of its keys. */
export function countAhead(views: readonly ClaimView[]): number[] {
  const countByKey = new Map<string, number>();
  return views.map(({ holds }) => {
    let maxAhead = 0;
    for (const { key } of holds) {
      const aheadOnKey = countByKey.get(key) ?? 0;
      maxAhead = Math.max(maxAhead, aheadOnKey);
      countByKey.set(key, aheadOnKey + 1);
    }
    return maxAhead;
  });
}

/** "exclusive", "shared", or how many of how many permits. */
function formatMode({ permits, limit }: LockSpec): string {
  if (limit < ALL_PERMITS) return `${permits}/${limit}`;
  return permits < ALL_PERMITS ? "shared" : "exclusive";
}

/** Behind a state, of what is not exclusive. */
export function formatModeSuffix(hold: LockSpec): string {
  const mode = formatMode(hold);
  return mode === "exclusive" ? "" : ` ${mode}`;
}

/** A claim for --json. */
export function toJsonRecord(view: ClaimView, ahead: number): object {
  const { holds, answer, ageMs, ttlMs, label, tag } = view;
  return {
    keys: holds.map(({ key }) => key),
    state: answer.state,
    mode: formatMode(holds[0]),
    ageMs: Math.floor(ageMs),
    sinceMs: Math.floor(sinceMs(view)),
    ttlMs,
    leftMs: ttlMs === "session" || answer.state === "none" ? null : Math.floor(answer.ttlMs),
    token: answer.state === "held" ? answer.token : null,
    tokens: answer.state === "held" ? answer.tokens : null,
    ahead: answer.state === "held" ? null : ahead,
    label,
    tag,
  };
}
