/** What stands in a node: for people and tools, never for admission. */

import type { Claim } from "../../spi/driver.ts";

/** What Curator writes into the node of a lock whose holder is asked to go. */
export const REVOKE: Buffer = Buffer.from("__REVOKE__");

/** Of the data, and with it of the names beside it. */
const VERSION = 1;

export interface NodeData {
  readonly label: string;
  readonly tokens: number;
  readonly floor: bigint;
  readonly wait: boolean;
}

export function dataOf({ label, tokens, floor, wait }: Claim): Buffer {
  return Buffer.from(JSON.stringify({ v: VERSION, label, tokens, floor: String(floor), wait }));
}

/** Null: somebody else's, or of a later version. */
export function readData(data: Buffer): NodeData | null {
  let raw: Partial<Record<keyof NodeData | "v", unknown>> | null;
  try {
    raw = JSON.parse(data.toString("utf8")) as typeof raw;
  } catch {
    // Curator writes the address of its host
    return null;
  }
  if (typeof raw !== "object" || raw?.v !== VERSION || typeof raw.label !== "string") return null;
  const floor = typeof raw.floor === "string" && /^\d{1,19}$/.test(raw.floor) ? BigInt(raw.floor) : 0n;
  const tokens = Number.isSafeInteger(raw.tokens) ? (raw.tokens as number) : 1;
  return { label: raw.label, tokens, floor, wait: raw.wait !== false };
}
