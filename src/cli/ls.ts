/** `holdfast ls [PREFIX]`: who holds and who waits. */

import { shownDuration } from "../duration.ts";
import type { ClaimView, Hold } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import { commandError } from "./failure.ts";
import { jsonLine, print, visible } from "./output.ts";
import { openStore } from "./store.ts";

/** Flags of `ls`. */
export interface ListFlags {
  readonly url?: string;
  readonly json?: boolean;
}

/** Lists the claims on keys that start with prefix. With --json one object a line. */
export async function list(prefix: string | undefined, flags: ListFlags): Promise<number> {
  const store = await openStore(flags.url);
  try {
    const views = await store.locks.list(prefix ?? "").catch((error: unknown) => {
      throw commandError(error, store.name);
    });
    if (flags.json === true) for (const view of views) print(jsonLine(asRecord(view)));
    else for (const line of table(views.map(rowOf))) print(line);
    return 0;
  } finally {
    await store.locks.close();
  }
}

const HEAD = ["KEY", "STATE", "MODE", "SINCE", "LEASE", "TOKEN", "HOLDER"] as const;

function rowOf({ holds, answer, ageMs, ttlMs, label }: ClaimView): readonly string[] {
  return [
    holds.map(({ key }) => visible(key)).join(", "),
    answer.state,
    modeOf(holds[0]),
    shownDuration(ageMs),
    ttlMs === "session" ? "session" : answer.state === "none" ? "" : shownDuration(answer.ttlMs),
    answer.state === "held" ? String(answer.token) : "",
    visible(label),
  ];
}

function modeOf({ permits, limit }: Hold): string {
  if (limit < ALL_PERMITS) return `${permits}/${limit}`;
  return permits < ALL_PERMITS ? "shared" : "exclusive";
}

function asRecord({ holds, answer, ageMs, ttlMs, label, tag }: ClaimView): object {
  return {
    keys: holds.map(({ key }) => key),
    state: answer.state,
    mode: modeOf(holds[0]),
    ageMs: Math.floor(ageMs),
    ttlMs,
    leftMs: ttlMs === "session" || answer.state === "none" ? null : Math.floor(answer.ttlMs),
    token: answer.state === "held" ? answer.token : null,
    label,
    tag,
  };
}

/** Columns as wide as their widest cell; the last one is as long as it is. Empty, if there is nothing to show. */
function table(rows: readonly (readonly string[])[]): string[] {
  if (rows.length === 0) return [];
  const all = [HEAD, ...rows];
  const widths = HEAD.map((_, column) => Math.max(...all.map((row) => [...(row[column] ?? "")].length)));
  return all.map((row) =>
    row
      .map((cell, column) => pad(cell, column, widths))
      .join("  ")
      .trimEnd(),
  );
}

function pad(cell: string, column: number, widths: readonly number[]): string {
  return column === HEAD.length - 1 ? cell : cell + " ".repeat((widths[column] ?? 0) - [...cell].length);
}
