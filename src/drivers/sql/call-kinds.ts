/**
 * The kinds of calls that lock a bucket, and how they alternate: renewals, releases, claims. So no lease ends behind a
 * flood of releases or claims of its own process, no claim waits behind renewals of waiting claims, which may be made
 * without a pause, and a claim is sent after the release before it.
 */

/**
 * "release" also stands for calls that restore claims, which no release may overtake; "renewal" for all others but
 * claims.
 */
export type CallKind = "release" | "renewal" | "claim";

/** The order in which they alternate. */
const KINDS: readonly CallKind[] = ["renewal", "release", "claim"];

/** All kinds, in their order after a call of this one. */
export function listKindsAfter(kind: CallKind): readonly CallKind[] {
  const first = KINDS.indexOf(kind) + 1;
  return [...KINDS.slice(first), ...KINDS.slice(0, first)];
}
