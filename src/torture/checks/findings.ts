/** What the checks of a history have found. */

import type { OperationRecord } from "../operations.ts";
import { operationId } from "../operations.ts";

export const INVARIANTS = ["exclusion", "tokens", "register", "release", "notice", "progress", "remains"] as const;
export type Invariant = (typeof INVARIANTS)[number];

export interface Violation {
  readonly invariant: Invariant;
  readonly message: string;
  /** Microseconds since the start of the run. */
  readonly at: number;
  readonly key: string | null;
  /** The operations concerned, as "worker/op". */
  readonly operations: readonly string[];
}

export class Findings {
  readonly #violations: Violation[] = [];

  /** In the order of time. */
  get violations(): readonly Violation[] {
    return this.#violations.sort((a, b) => a.at - b.at);
  }

  add(
    invariant: Invariant,
    at: number,
    key: string | null,
    operations: readonly OperationRecord[],
    message: string,
  ): void {
    this.#violations.push({ invariant, at, key, operations: operations.map(operationId), message });
  }
}

/** Microseconds in a millisecond. */
export const MICROS = 1_000;

export function formatMs(micros: number): string {
  const ms = micros / MICROS;
  return ms < 10 ? `${ms.toFixed(1)} ms` : `${ms.toFixed(0)} ms`;
}
