/** Whose locks are tortured, and where. */

/** As `--start` has them; "server-tcp" is what a rival with a server of its own is compared with. */
type TortureStore = "redis" | "postgres" | "etcd" | "server-tcp";

export interface TortureSubject {
  readonly name: string;
  /** What a published page calls it, until its maintainers have been asked. */
  readonly class: string;
  readonly store: TortureStore;
  /** The name of its adapter below bench/rivals; null: Holdfast. */
  readonly adapter: string | null;
  /** Its folder below bench/node_modules; null: it is no package. */
  readonly folder: string | null;
  /** It needs Node.js 22. */
  readonly isNewer?: boolean;
}

const HOLDFAST = { name: "Holdfast", class: "Holdfast", adapter: null, folder: null } as const;

export const TORTURE_SUBJECTS: readonly TortureSubject[] = [
  { ...HOLDFAST, store: "redis" },
  ofPackage("redlock 4", "quorum library with extension by hand", "redis", "redlock4", "redlock"),
  ofPackage("redlock 5 beta", "quorum library with extension", "redis", "redlock5"),
  ofPackage("redis-semaphore", "single-Redis mutex with refresh", "redis", "redis-semaphore"),
  {
    ...ofPackage("redlock-universal", "single-Redis lock with extension", "redis", "redlock-universal"),
    isNewer: true,
  },
  ofPackage("@verrou/core", "single-Redis lock with extension by hand", "redis", "verrou", "@verrou/core"),
  ofPackage("simple-redis-mutex", "single-Redis mutex with tokens", "redis", "simple-redis-mutex"),
  { name: "SET NX PX", class: "SET NX PX by hand", store: "redis", adapter: "set-nx-px", folder: null },
  { ...HOLDFAST, store: "postgres" },
  ofPackage("advisory-lock", "advisory lock", "postgres", "advisory-lock"),
  { ...HOLDFAST, store: "etcd" },
  ofPackage("etcd3", "etcd lease", "etcd", "etcd3"),
  { ...HOLDFAST, store: "server-tcp" },
  ofPackage("live-mutex", "own server", "server-tcp", "live-mutex"),
];

function ofPackage(
  name: string,
  kind: string,
  store: TortureStore,
  adapter: string,
  folder: string = adapter,
): TortureSubject {
  return { name, class: kind, store, adapter, folder };
}
