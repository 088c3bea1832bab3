/** An integer of a row: a number, or a bigint if a number would round it. */
export function normalizeInteger(value: bigint): number | bigint {
  return value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
}
