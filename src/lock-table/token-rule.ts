/**
 * The token rule, which scripts and procedures restate (docs/design/rules.md): token = max(last + 1, floor, clock), where `last` is the highest token granted before on the claim's keys
 * and the clock that of the store, in microseconds since 1970. Numbers, since they stay below 2^53 until the year 2255.
 *
 * Invariant: every token is higher than all tokens granted before on its keys. A store may forget the last token of a key when
 * its clock has passed it (decision 0008): every token from the clock is higher anyway. So an idle key needs no memory.
 */

/** A floor further ahead of the clock than this is refused: a floor near the highest number would use up the key's tokens. */
const MAX_FLOOR_LEAD_MICROS = 86_400_000_000;

/** The first token that may be granted after `lastToken`, the highest one granted on the claim's keys; 0 if none is known. */
export function nextToken(lastToken: number, floor: bigint, clockMicros: number): number {
  return Math.max(clockMicros, Number(floor), lastToken + 1);
}

/** Is this floor close enough to the clock to be accepted? If not, refuse the claim with StoreRefusedError. */
export function acceptsFloor(floor: bigint, clockMicros: number): boolean {
  return floor === 0n || Number(floor) <= clockMicros + MAX_FLOOR_LEAD_MICROS;
}
