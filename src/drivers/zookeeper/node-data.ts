/** The data of a claim's node: for people and tools, never for admission. */

import type { Claim } from "../../spi/driver.ts";

/** Curator writes this into the node of a lock to revoke it. */
export const REVOKE_DATA: Buffer = Buffer.from("__REVOKE__");

/** The version of the data, and of the node names that go with it. */
const DATA_VERSION = 1;

export interface NodeData {
  readonly label: string;
  readonly tokens: number;
  readonly floor: bigint;
  readonly wait: boolean;
}

export function encodeData({ label, tokenCount: tokens, floor, wait }: Claim): Buffer {
  return Buffer.from(JSON.stringify({ v: DATA_VERSION, label, tokens, floor: String(floor), wait }));
}

/** Null: not Holdfast's data, or of a later version. */
export function decodeData(data: Buffer): NodeData | null {
  let parsed: Partial<Record<keyof NodeData | "v", unknown>> | null;
  try {
    parsed = JSON.parse(data.toString("utf8")) as typeof parsed;
  } catch {
    // not JSON: Curator, for instance, writes the address of its host
    return null;
  }
  if (typeof parsed !== "object" || parsed?.v !== DATA_VERSION || typeof parsed.label !== "string") return null;
  const floor = typeof parsed.floor === "string" && /^\d{1,19}$/.test(parsed.floor) ? BigInt(parsed.floor) : 0n;
  const tokens = Number.isSafeInteger(parsed.tokens) ? (parsed.tokens as number) : 1;
  return { label: parsed.label, tokens, floor, wait: parsed.wait !== false };
}
