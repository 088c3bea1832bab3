import type { Ending } from "./strategies.ts";

/** What a process of claimants reports. */
export interface ProcessReport {
  /** How many of its requests ended how. */
  readonly counts: Readonly<Partial<Record<Ending, number>>>;
  readonly retries: number;
}
