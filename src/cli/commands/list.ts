/** `holdfast ls [PREFIX]`: lists holders and waiters. */

import { modeOf, toClaimInfo } from "../../spi/claim-info.ts";
import type { ClaimView, LockSpec } from "../../spi/driver.ts";
import { formatDuration } from "../../util/duration.ts";
import { listClaims, MAX_LISTED, openStore } from "../open-store.ts";
import { escapeControl, formatJsonLine, info, printLine } from "../output.ts";
import type { StoreFlags } from "../store-choice.ts";
import type { Column, Terminal } from "../terminal-table.ts";
import { detectTerminal, renderTable, truncateLabel } from "../terminal-table.ts";

/** Flags of `ls`. */
export interface ListFlags extends StoreFlags {
  readonly json?: boolean;
}

/** Lists the claims on keys that begin with `prefix`. With --json it prints one object per line. */
export async function listCommand(prefix: string | undefined, flags: ListFlags): Promise<number> {
  const store = await openStore(flags);
  try {
    const { items: views, next } = await listClaims(store, prefix ?? "");
    if (flags.json === true) for (const view of views) printLine(formatJsonLine(toClaimInfo(view)));
    else for (const line of formatClaims(views, detectTerminal())) printLine(line);
    if (next !== undefined) info(`showing the first ${MAX_LISTED} claims; pass a PREFIX to narrow the list`);
    return 0;
  } finally {
    await store.close();
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

/** A narrower table has no tokens; --json and `show` have them. */
const WIDE_COLUMNS = 110;

/** The claims as a table, those of a key in the order of its queue. */
export function formatClaims(views: readonly ClaimView[], terminal: Terminal): string[] {
  const isWide = terminal.columns === null || terminal.columns >= WIDE_COLUMNS;
  const columns = [KEY, STATE, SINCE, LEASE, AHEAD, ...(isWide ? [TOKEN] : []), HOLDER];
  const ahead = countAhead(views);
  const rows = views.map((view, index) => {
    const { locks, answer, label } = view;
    const isHeld = answer.state === "held";
    return [
      locks.map(({ key }) => escapeControl(key)).join(", "),
      `${answer.state}${formatModeSuffix(locks[0])}`,
      formatDuration(sinceMs(view)),
      formatLease(view),
      isHeld ? "" : String(ahead[index]),
      ...(isWide ? [isHeld ? String(answer.token) : ""] : []),
      escapeControl(label),
    ];
  });
  return renderTable(columns, rows, terminal);
}

/** For how long the claim has been held, or for how long a waiting claim has waited. */
export function sinceMs({ ageMs, heldMs }: ClaimView): number {
  return heldMs ?? ageMs;
}

/** The remaining lease as text. */
export function formatLease({ answer, ttlMs }: ClaimView): string {
  if (ttlMs === "session") return "session";
  return answer.state === "none" ? "" : formatDuration(answer.remainingMs);
}

/** For each claim, how many claims are ahead of it; with several keys, in the longest of its queues. */
export function countAhead(views: readonly ClaimView[]): number[] {
  const countByKey = new Map<string, number>();
  return views.map(({ locks }) => {
    let maxAhead = 0;
    for (const { key } of locks) {
      const aheadOnKey = countByKey.get(key) ?? 0;
      maxAhead = Math.max(maxAhead, aheadOnKey);
      countByKey.set(key, aheadOnKey + 1);
    }
    return maxAhead;
  });
}

/** Follows the state of a claim: " shared", " 1/4" for one of four permits; empty for an exclusive claim. */
export function formatModeSuffix(spec: LockSpec): string {
  const mode = modeOf([spec]);
  if (mode === "exclusive") return "";
  return mode === "semaphore" ? ` ${spec.permits}/${spec.limit}` : " shared";
}
