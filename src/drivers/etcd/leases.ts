/**
 * The leases of a driver in etcd: one for each ttl of its claims, whatever their number.
 *
 * Invariants
 * - A lease is believed from when the request was sent that the leader has answered: a grant, which goes through the log, or a
 *   keep-alive, if a read through the log after it finds the term that the keep-alive's header shows. A leader that was replaced answers
 *   keep-alives for a while, also through followers and in all versions, and does not know that its answer is void. A member fills the
 *   header before it extends the lease, and once it has seen a term it asks no leader of an earlier one.
 * - A keep-alive extends all entries of the lease. So those whose claims were not renewed for their ttl are deleted first; if that
 *   fails, it is not sent.
 */

import { chunk } from "../../util/chunk.ts";
import type { Clock } from "../../util/clock.ts";
import type { EtcdClient } from "./client/client.ts";
import type { Header, Operation } from "./client/messages.ts";
import { belongsTo, deleteKey, encodeText, MAX_TXN_OPERATIONS } from "./client/messages.ts";
import { Lease } from "./entry.ts";

/** Leases of other ttls use the next longer one, unless an entry would stay there for more than twice its ttl. */
const MAX_LEASES = 16;
/** A lease with less than this share of a claim's ttl left is extended before the claim is made. */
const FRESH_SHARE = 0.96;
/** A younger keep-alive is not repeated for a renewal: see Driver.renew(). */
const RECENT_SHARE = 1 / 8;
/** How often a keep-alive is tried when an election comes between. */
const MAX_ATTEMPTS = 4;

interface LeasesOptions {
  readonly client: EtcdClient;
  readonly clock: Clock;
  /** A key that only the driver reads. */
  readonly probeKey: string;
  /** The servers have no such lease any more, and so none of its entries. */
  readonly onEnded: (lease: Lease) => void;
}

export class Leases {
  readonly #options: LeasesOptions;
  /** By their length in seconds. */
  readonly #bySeconds = new Map<number, Lease>();
  readonly #pendingGrants = new Map<number, Promise<Lease>>();

  constructor(options: LeasesOptions) {
    this.#options = options;
  }

  /** The lease of this ttl, in whole seconds, or a longer one; it has nearly all of it left. */
  async obtain(ttlMs: number): Promise<Lease> {
    const seconds = Math.ceil(ttlMs / 1_000);
    const lease = this.#bySeconds.get(seconds) ?? this.#findLonger(seconds) ?? (await this.#grantShared(seconds));
    if (lease.remainingMs(this.#options.clock.now()) >= FRESH_SHARE * ttlMs) return lease;
    await this.#keepAlive(lease);
    // it had ended: the next one is new
    return this.#bySeconds.get(lease.seconds) === lease ? lease : this.obtain(ttlMs);
  }

  /** Extends the lease, unless that was done a moment ago. */
  async extend(lease: Lease): Promise<void> {
    const { clock } = this.#options;
    if (lease.pendingKeepAlive === null && clock.now() - lease.provenAt < lease.seconds * 1_000 * RECENT_SHARE) return;
    await this.#keepAlive(lease);
  }

  /** Grants a lease that this driver does not extend. */
  async grant(ttlMs: number): Promise<string> {
    const body = { TTL: String(Math.ceil(ttlMs / 1_000)) };
    return (await this.#options.client.call<{ ID: string }>("/v3/lease/grant", body)).ID;
  }

  /**
   * The term of the leader that leads now: one read through the log.
   * @throws StoreRefusedError if the user may not read what the driver keeps
   */
  async readTerm(timeoutMs?: number): Promise<string> {
    const body = { key: encodeText(this.#options.probeKey), count_only: true };
    return (await this.#options.client.range(body, timeoutMs)).header.raft_term;
  }

  /** New claims get another lease. */
  retire(lease: Lease): void {
    if (this.#bySeconds.get(lease.seconds) === lease) this.#bySeconds.delete(lease.seconds);
  }

  /** The servers have no such lease: its entries are gone. */
  onMissing(lease: Lease): void {
    this.retire(lease);
    this.#options.onEnded(lease);
  }

  /** Ends the leases without entries. Those with entries end by themselves: their holders may still rely on them. */
  async close(): Promise<void> {
    const unused = [...this.#bySeconds.values()].filter(({ entries }) => entries.size === 0);
    this.#bySeconds.clear();
    await Promise.allSettled(unused.map(({ id }) => this.#options.client.call("/v3/lease/revoke", { ID: id })));
  }

  /** With as many as there may be: the shortest that is longer. Those that no claim has used for their ttl do not count. */
  #findLonger(seconds: number): Lease | undefined {
    if (this.#bySeconds.size < MAX_LEASES) return undefined;
    const now = this.#options.clock.now();
    for (const [key, lease] of this.#bySeconds)
      if (lease.entries.size === 0 && lease.remainingMs(now) <= 0) this.#bySeconds.delete(key);
    if (this.#bySeconds.size < MAX_LEASES) return undefined;
    return [...this.#bySeconds.values()]
      .filter((lease) => lease.seconds > seconds && lease.seconds <= 2 * seconds)
      .sort((left, right) => left.seconds - right.seconds)[0];
  }

  /** The calls that come while it is granted share it. */
  #grantShared(seconds: number): Promise<Lease> {
    const pending =
      this.#pendingGrants.get(seconds) ?? this.#grantNew(seconds).finally(() => this.#pendingGrants.delete(seconds));
    this.#pendingGrants.set(seconds, pending);
    return pending;
  }

  async #grantNew(seconds: number): Promise<Lease> {
    const sentAt = this.#options.clock.now();
    // the servers' shortest ttl may be longer; the holder believes what it has asked for
    const lease = new Lease(await this.grant(seconds * 1_000), seconds, sentAt);
    this.#bySeconds.set(seconds, lease);
    return lease;
  }

  #keepAlive(lease: Lease): Promise<void> {
    lease.pendingKeepAlive ??= this.#deleteOverdueAndKeepAlive(lease).finally(() => {
      lease.pendingKeepAlive = null;
    });
    return lease.pendingKeepAlive;
  }

  async #deleteOverdueAndKeepAlive(lease: Lease): Promise<void> {
    await this.#deleteOverdue(lease);
    const { client, clock } = this.#options;
    const timeoutMs = toCallTimeoutMs(lease);
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      const sentAt = clock.now();
      const { result } = await client.call<{ result: { header: Header; TTL?: string } }>(
        "/v3/lease/keepalive",
        { ID: lease.id },
        timeoutMs,
      );
      // an election came between: which leader has answered is not certain
      if (result.header.raft_term !== (await this.readTerm(timeoutMs))) continue;
      if (Number(result.TTL ?? 0) === 0) return this.onMissing(lease);
      lease.provenAt = sentAt;
      return;
    }
    throw new Error("etcd: the leader changes too often to extend a lease");
  }

  async #deleteOverdue(lease: Lease): Promise<void> {
    const now = this.#options.clock.now();
    const overdue = [...lease.entries].filter(({ dueAt }) => dueAt <= now);
    for (const part of chunk(overdue, MAX_TXN_OPERATIONS)) {
      const deletions: Operation[] = part.map(({ name }) => ({
        // another client may have taken it over
        request_txn: { compare: [belongsTo(name, lease.id)], success: [deleteKey(name)] },
      }));
      await this.#options.client.txn({ success: deletions });
      for (const entry of part) entry.end("expired");
    }
  }
}

/** A renewal has several attempts within a lease. */
export function toCallTimeoutMs(lease: Lease): number | undefined {
  const shortMs = (lease.seconds * 1_000) / 4;
  return shortMs < 2_000 ? shortMs : undefined;
}
