/**
 * The token rule and the floor rule, which scripts and procedures restate (docs/design/rules.md): token = max(last + 1,
 * floor, clock), where `last` is the highest token granted before on the claim's keys and the clock that of the store,
 * in microseconds since 1970. Numbers, since they stay below 2^53 until the year 2255.
 *
 * Invariant: every token is higher than all tokens granted before on its keys. A store may forget the last token of a
 * key when its clock has passed it (decision 0008): every token from the clock is higher anyway. So an idle key needs
 * no memory.
 */

/**
 * A floor further ahead of the clock than this, and of the last token, is an error, which would use up the key's
 * tokens.
 */
const MAX_FLOOR_LEAD_MICROS = 86_400_000_000;

/**
 * The first token that may be granted after `lastToken`, the highest one granted on the claim's keys; 0 if none is
 * known.
 */
export function nextToken(lastToken: number, floor: bigint, clockMicros: number): number {
  return Math.max(clockMicros, Number(floor), lastToken + 1);
}

/**
 * The floor rule: one above the last token is right wherever the clock is, which may have stepped back; else the floor
 * is at most a day ahead of it. If not, refuse the claim with StoreRefusedError.
 */
export function acceptsFloor(lastToken: number, floor: bigint, clockMicros: number): boolean {
  return Number(floor) <= Math.max(lastToken + 1, clockMicros + MAX_FLOOR_LEAD_MICROS);
}
