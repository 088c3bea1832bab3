/** Whose locks are tortured, and where. */

import type { StoreName } from "../../src/torture/stores/stores.ts";
import { STORE_NAMES } from "../../src/torture/stores/stores.ts";

/** Stores that `holdfast torture` does not start, and that are tortured by their url. */
const URL_STORE_NAMES = ["dynamodb", "s3"] as const;
export type UrlStoreName = (typeof URL_STORE_NAMES)[number];

export interface TortureSubject {
  /** What a published page calls it, until its maintainers have been asked. */
  readonly class: string;
  readonly store: StoreName | UrlStoreName;
  /** The name of its adapter below bench/rivals; null: Holdfast. */
  readonly adapter: string | null;
  /** No package of others, so its row may have its name. */
  readonly isByHand?: true;
  /** It needs Node.js 22. */
  readonly isNewer?: true;
}

/** Holdfast, as it is called on the command line: on every store. */
const HOLDFAST_NAME = "holdfast";
export const HOLDFAST_CLASS = "Holdfast";

export function isUrlStore(store: TortureSubject["store"]): store is UrlStoreName {
  return (URL_STORE_NAMES as readonly string[]).includes(store);
}

const RIVALS: readonly TortureSubject[] = [
  { class: "quorum library with extension by hand", store: "redis", adapter: "redlock4" },
  { class: "quorum library with extension", store: "redis", adapter: "redlock5" },
  { class: "single-Redis mutex with refresh", store: "redis", adapter: "redis-semaphore" },
  { class: "single-Redis lock with extension", store: "redis", adapter: "redlock-universal", isNewer: true },
  { class: "single-Redis lock with extension by hand", store: "redis", adapter: "verrou" },
  { class: "single-Redis mutex with tokens", store: "redis", adapter: "simple-redis-mutex" },
  { class: "SET NX PX by hand", store: "redis", adapter: "set-nx-px", isByHand: true },
  { class: "advisory lock", store: "postgres", adapter: "advisory-lock" },
  { class: "etcd lease", store: "etcd", adapter: "etcd3" },
  { class: "own server", store: "server-tcp", adapter: "live-mutex" },
];

/** Holdfast on each store, followed by its rivals there, so that these are compared within minutes. */
const SUBJECTS: readonly TortureSubject[] = [...STORE_NAMES, ...URL_STORE_NAMES].flatMap((store) => [
  { class: HOLDFAST_CLASS, store, adapter: null },
  ...RIVALS.filter((rival) => rival.store === store),
]);

/**
 * @param names of stores: Holdfast alone; of adapters: these rivals, and Holdfast on their stores; "holdfast": it on all stores. None: all
 * @throws RangeError if one is none of these
 */
export function selectSubjects(names: readonly string[]): readonly TortureSubject[] {
  const known = new Set([HOLDFAST_NAME, ...SUBJECTS.map(({ store, adapter }) => adapter ?? store)]);
  const unknown = names.filter((name) => !known.has(name));
  if (unknown.length > 0)
    throw new RangeError(`no store or rival ${unknown.join(", ")}; there are ${[...known].join(", ")}`);
  if (names.length === 0) return SUBJECTS;
  const isNamed = ({ adapter, store }: TortureSubject): boolean => names.includes(adapter ?? store);
  const storesOfRivals = new Set(RIVALS.filter(isNamed).map(({ store }) => store));
  return SUBJECTS.filter(
    (subject) =>
      isNamed(subject) ||
      (subject.adapter === null && (names.includes(HOLDFAST_NAME) || storesOfRivals.has(subject.store))),
  );
}
