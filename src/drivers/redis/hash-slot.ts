/** Computes hash slots of Redis Cluster. */

import { crc16 } from "../../util/crc16.ts";

const SLOT_COUNT = 16_384;

/** The slot of a name that contains a hash tag. */
export function toHashSlot(name: string): number {
  return crc16(name.slice(name.indexOf("{") + 1, name.indexOf("}"))) % SLOT_COUNT;
}
