/** Where Redis Cluster keeps a name. */

import { crc16 } from "../crc16.ts";

const SLOTS = 16_384;
const known = new Map<string, number>();

/** The slot of a name that bears a hash tag of ours. */
export function slotOf(name: string): number {
  const tag = name.slice(name.indexOf("{") + 1, name.indexOf("}"));
  let slot = known.get(tag);
  if (slot === undefined) {
    slot = crc16(tag) % SLOTS;
    known.set(tag, slot);
  }
  return slot;
}
