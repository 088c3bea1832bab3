// The raw state of an etcd: its keys and leases as they are there, read by requests of the test's own, not by the driver.

import type { EtcdServer } from "./etcd.ts";

export type EtcdEntry = {
  readonly key: string;
  readonly value: Buffer;
  /** Of the lease that ends it; null if nothing does. */
  readonly lease: string | null;
  readonly createRevision: bigint;
  readonly modRevision: bigint;
};

type EtcdLease = {
  /** In decimal digits, as the gateway writes it. */
  readonly id: string;
  /** Seconds that it was granted, and that it has left. */
  readonly grantedTtl: number;
  readonly remainingTtl: number;
  readonly keys: readonly string[];
};

export type EtcdState = { readonly entries: readonly EtcdEntry[]; readonly leases: readonly EtcdLease[] };

/** Whatever is in the store, keys in order of creation. A token where it knows users: one of root's. */
export async function readEtcdState(server: EtcdServer, token?: string): Promise<EtcdState> {
  const [entries, leases] = await Promise.all([readEntries(server, token), readLeases(server, token)]);
  return { entries, leases };
}

/** The entries of one lock by the recipe of `etcdctl lock`, the holder first: keys directly below its name. */
export async function readEtcdQueue(server: EtcdServer, name: string, token?: string): Promise<readonly EtcdEntry[]> {
  const entries = await readEntries(server, token);
  return entries.filter(({ key }) => key.startsWith(`${name}/`) && !key.includes("/", name.length + 1));
}

/** What makes the state of a store that no client uses wrong, in words; empty if nothing does. */
export function findEtcdRemains({ entries, leases }: EtcdState, expected: ReadonlySet<string> = new Set()): string[] {
  return [
    ...entries.filter(({ key }) => !expected.has(key)).map(({ key }) => `the key ${key} is left behind`),
    ...leases.map(({ id, grantedTtl }) => `lease ${id} of ${grantedTtl} s is left behind`),
  ];
}

/** What is wrong while clients use it, in words: a key that no lease ends, or whose lease is not there. */
export function findEtcdViolations(
  { entries, leases }: EtcdState,
  expected: ReadonlySet<string> = new Set(),
): string[] {
  const ids = new Set(leases.map(({ id }) => id));
  return entries.flatMap(({ key, lease }) => {
    if (expected.has(key)) return [];
    if (lease === null) return [`${key} has no end`];
    return ids.has(lease) ? [] : [`${key} belongs to a lease that is not there`];
  });
}

async function readEntries(server: EtcdServer, token?: string): Promise<EtcdEntry[]> {
  const all = { key: "AA==", range_end: "AA==", sort_target: "CREATE", sort_order: "ASCEND" };
  const { kvs = [] } = await ask(server, "/v3/kv/range", all, token);
  return kvs.map((kv: Readonly<Record<string, string>>) => ({
    key: Buffer.from(kv.key ?? "", "base64").toString(),
    value: Buffer.from(kv.value ?? "", "base64"),
    lease: kv.lease ?? null,
    createRevision: BigInt(kv.create_revision ?? 0),
    modRevision: BigInt(kv.mod_revision ?? 0),
  }));
}

async function readLeases(server: EtcdServer, token?: string): Promise<EtcdLease[]> {
  const { leases = [] } = await ask(server, "/v3/lease/leases", {}, token);
  const answers = await Promise.all(
    leases.map(async ({ ID }: { readonly ID: string }) => ({
      id: ID,
      ...(await ask(server, "/v3/lease/timetolive", { ID, keys: true }, token)),
    })),
  );
  return (
    answers
      .map(({ id, grantedTTL = 0, TTL = 0, keys = [] }) => ({
        id,
        grantedTtl: Number(grantedTTL),
        remainingTtl: Number(TTL),
        keys: keys.map((key: string) => Buffer.from(key, "base64").toString()),
      }))
      // it has ended since they were listed
      .filter(({ remainingTtl }) => remainingTtl >= 0)
  );
}

// biome-ignore lint/suspicious/noExplicitAny: each call has a shape of its own
async function ask(server: EtcdServer, path: string, body: object, token?: string): Promise<any> {
  const answer = await server.call(path, body, token);
  if (answer.status !== 200) throw new Error(`etcd answered ${path} with ${answer.status}: ${answer.body.error}`);
  return answer.body;
}
