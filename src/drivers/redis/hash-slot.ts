/** Computes hash slots of Redis Cluster. */

import { crc16 } from "./crc16.ts";

const SLOT_COUNT = 16_384;
const slotByTag = new Map<string, number>();

/** The slot of a name that contains a hash tag. */
export function toHashSlot(name: string): number {
  const tag = name.slice(name.indexOf("{") + 1, name.indexOf("}"));
  let slot = slotByTag.get(tag);
  if (slot === undefined) {
    slot = crc16(tag) % SLOT_COUNT;
    slotByTag.set(tag, slot);
  }
  return slot;
}
