/** The claims of each label: what it holds, and what it waits for. */

import type { ListedClaim } from "../../gateway/dashboard/view-types.ts";
import type { LockInfo } from "../../spi/claim-info.ts";

/** One key that a claim holds or waits for. */
interface HeldLock {
  readonly claim: ListedClaim;
  readonly lock: LockInfo;
}

/** All claims with the same label. */
export interface HolderGroup {
  readonly label: string;
  readonly held: readonly HeldLock[];
  readonly waiting: readonly HeldLock[];
}

/** A line of the view: the head of a group, or one of its locks. */
export type HolderLine =
  | { readonly kind: "group"; readonly id: string; readonly group: HolderGroup }
  | { readonly kind: "lock"; readonly id: string; readonly group: HolderGroup; readonly held: HeldLock };

/** The groups, those with the most claims first. */
export function groupByLabel(claims: readonly ListedClaim[]): readonly HolderGroup[] {
  const groups = new Map<string, { readonly label: string; readonly held: HeldLock[]; readonly waiting: HeldLock[] }>();
  for (const claim of claims) {
    const group = groups.get(claim.label) ?? { label: claim.label, held: [], waiting: [] };
    groups.set(claim.label, group);
    const side = claim.state === "held" ? group.held : group.waiting;
    for (const lock of claim.locks) side.push({ claim, lock });
  }
  return [...groups.values()].sort((one, other) => countLocks(other) - countLocks(one) || compareLabels(one, other));
}

function countLocks({ held, waiting }: HolderGroup): number {
  return held.length + waiting.length;
}

function compareLabels(one: HolderGroup, other: HolderGroup): number {
  return one.label < other.label ? -1 : Number(one.label > other.label);
}

/** The groups whose label or one of whose keys contains the text, in any case. */
export function filterGroups(groups: readonly HolderGroup[], text: string): readonly HolderGroup[] {
  if (text === "") return groups;
  const wanted = text.toLowerCase();
  return groups.flatMap((group) => {
    if (group.label.toLowerCase().includes(wanted)) return [group];
    const contains = ({ lock }: HeldLock): boolean => lock.key.toLowerCase().includes(wanted);
    const [held, waiting] = [group.held.filter(contains), group.waiting.filter(contains)];
    return held.length + waiting.length === 0 ? [] : [{ label: group.label, held, waiting }];
  });
}

/** The groups as lines: each head, what it holds, what it waits for. */
export function listLines(groups: readonly HolderGroup[]): readonly HolderLine[] {
  return groups.flatMap((group): HolderLine[] => [
    { kind: "group", id: `group ${group.label}`, group },
    ...[...group.held, ...group.waiting].map(
      (held): HolderLine => ({ kind: "lock", id: `${held.claim.tag} ${held.lock.key}`, group, held }),
    ),
  ]);
}
