/**
 * etcd as a store: one entry per claim, in the order of their creation, as in the recipe of `etcdctl lock` and of the official Go client;
 * a waiting claim watches only the entry that blocks it. The entries of all claims with one ttl belong to one lease.
 *
 * Invariants
 * - A claim has one name (names.ts): a create without an answer is found, and never made twice.
 * - What is before an entry is only removed. So a claim is admitted once it was seen at the front, in whatever state of the store.
 * - "held" is answered for no longer than the lease lasts by this client's clock (leases.ts), and only for an entry that was read
 *   through the log since this call began, or whose watch is active.
 * - A released claim never keeps an entry: one whose deletion fails is deleted before its lease is extended, and a `claim` call that is still
 *   under way finds a tombstone.
 */

import { StoreRefusedError } from "../../errors.ts";
import type {
  Answer,
  Claim,
  ClaimView,
  Driver,
  DriverEvents,
  ListOptions,
  ListQuery,
  Page,
  Release,
  RevokeTarget,
  Traits,
} from "../../spi/driver.ts";
import { systemClock } from "../../util/clock.ts";
import { runInMicrotask } from "../../util/microtask.ts";
import { keepProcessAlive, withTimeout } from "../../util/timeout.ts";
import { Turns } from "../../util/turns.ts";
import { openWithRetries, toConnectTimeoutMs } from "../connect-timeout.ts";
import { RevisionTokens } from "../revision-tokens.ts";
import { EtcdClient } from "./client/client.ts";
import { diagnose, requireVersion } from "./diagnostics.ts";
import type { Entry, Lease } from "./entry.ts";
import { Entries } from "./entry.ts";
import { Leases } from "./leases.ts";
import { listClaims, readQueues } from "./list.ts";
import { DEFAULT_PREFIX, Names } from "./names.ts";
import type { EtcdOptions } from "./options.ts";
import { validateEtcdOptions } from "./options.ts";
import { EntryQueues } from "./queue.ts";
import { EntryWatches } from "./watches.ts";

export type { ServerAddress } from "../cluster-url.ts";
export type { EtcdOptions } from "./options.ts";

const DEFAULT_TIMEOUT_MS = 2_000;
/** More claims wait for their turn: their deadlines do not run yet, and renewals find a connection. */
const MAX_CLAIMS = 48;

const TRAITS: Traits = {
  lease: { claim: true },
  manyKeys: false,
  permits: "any",
  fencing: true,
  fifo: true,
  durability: "failover",
  recall: "push",
};

/**
 * Locks in an etcd cluster (3.4 or newer, with its JSON gateway, which is enabled by default).
 * @throws TypeError naming the option that is wrong
 */
export function etcd(options: EtcdOptions): Driver {
  validateEtcdOptions(options);
  return new EtcdDriver(options);
}

class EtcdDriver implements Driver {
  readonly name = "etcd";
  readonly #options: EtcdOptions;
  readonly #clock: NonNullable<EtcdOptions["clock"]>;
  readonly #names: Names;
  readonly #tokens: RevisionTokens;
  readonly #entries: Entries;
  readonly #client: EtcdClient;
  readonly #leases: Leases;
  readonly #watches: EntryWatches;
  readonly #queues: EntryQueues;
  /** By the queue's name: releases under way. A claim of this client for the same key comes after them. */
  readonly #releasing = new Map<string, Promise<unknown>>();
  readonly #turns = new Turns(MAX_CLAIMS);
  /** Held claims whose queues are read soon. */
  readonly #changed = new Set<Entry>();
  #events: DriverEvents | null = null;

  constructor(options: EtcdOptions) {
    this.#options = options;
    const { clock = systemClock, prefix = DEFAULT_PREFIX, compatible = true, tokenBase = 0n } = options;
    const { commandTimeoutMs: timeoutMs = DEFAULT_TIMEOUT_MS } = options;
    this.#clock = clock;
    const names = new Names(prefix, compatible);
    this.#names = names;
    this.#tokens = new RevisionTokens(tokenBase);
    this.#entries = new Entries(names);
    this.#client = new EtcdClient({
      ...{ ...options, clock, timeoutMs },
      onDisconnected: () => this.#events?.disconnected(),
      onReconnected: () => this.#events?.reconnected(),
    });
    this.#leases = new Leases({
      ...{ client: this.#client, clock },
      probeKey: names.probeKey,
      onEnded: (lease) => this.#onLeaseEnded(lease),
    });
    this.#watches = new EntryWatches({
      ...{ client: this.#client, clock },
      onFirst: (entry) => this.#onFirst(entry),
      onChanged: (entry) => this.#onChanged(entry),
    });
    this.#queues = new EntryQueues({
      ...{ client: this.#client, leases: this.#leases, watches: this.#watches, names, clock, tokens: this.#tokens },
      onWanted: ({ claim }) => this.#events?.recalled(claim.id),
    });
  }

  async open(events: DriverEvents): Promise<Traits> {
    const timeoutMs = toConnectTimeoutMs(this.#options.connectTimeout);
    await keepProcessAlive(this.#clock, () =>
      withTimeout(
        this.#clock,
        timeoutMs,
        openWithRetries(this.#clock, timeoutMs, async () => {
          await requireVersion(this.#client);
          // shows whether the user may read below the prefix
          await this.#leases.readTerm();
        }),
        () => Promise.reject(new Error(`etcd: no member has answered within ${timeoutMs} ms`)),
      ),
    );
    this.#events = events;
    return TRAITS;
  }

  claim(claim: Claim): Promise<Answer> {
    const entry = this.#entries.getOrCreate(claim);
    // asked again before it was sent
    entry.pendingTurn ??= this.#claimInTurn(entry);
    return entry.pendingTurn;
  }

  async renew(claims: readonly Claim[]): Promise<readonly (Answer | undefined)[]> {
    const entries = claims.map((claim) => this.#entries.getOrCreate(claim));
    const present = entries.filter(isLive);
    const now = this.#clock.now();
    for (const entry of present) entry.dueAt = now + entry.ttlMs;
    const leases = new Set(present.flatMap(({ lease }) => lease ?? []));
    // a stream that is silent is opened again, and costs no lease
    const isConfirmed = present.length > 0 && this.#client.confirm(Math.min(...present.map(({ ttlMs }) => ttlMs)) / 4);
    await Promise.all([
      ...[...leases].map((lease) => this.#leases.extend(lease)),
      present.some(isWatched) && isConfirmed,
    ]);
    // with a watch that covers it a held claim needs no request of its own
    const answers = await this.#queues.look(present.filter((entry) => isLive(entry) && !isWatched(entry)));
    return Promise.all(entries.map(async (entry) => answers.get(entry) ?? this.#toAnswer(entry)));
  }

  async release(releases: readonly Release[]): Promise<readonly boolean[]> {
    const entries = releases.map(({ claim, hasUnansweredClaim }) => {
      const entry = this.#entries.getOrCreate(claim);
      if (hasUnansweredClaim) entry.mayArrive = true;
      return entry;
    });
    const deletion = this.#queues.delete(entries);
    const settled = deletion.catch(() => undefined);
    for (const { queueName } of entries) this.#releasing.set(queueName, settled);
    try {
      const existed = await deletion;
      return entries.map((entry) => existed.has(entry));
    } finally {
      for (const { queueName } of entries)
        if (this.#releasing.get(queueName) === settled) this.#releasing.delete(queueName);
    }
  }

  forget(claim: Claim): void {
    this.#entries.forget(claim);
  }

  detach(claims: readonly Claim[], remainingMs: number = Number.POSITIVE_INFINITY): Promise<readonly boolean[]> {
    return Promise.all(claims.map((claim) => this.#queues.detach(this.#entries.getOrCreate(claim), remainingMs)));
  }

  revoke(targets: readonly RevokeTarget[]): Promise<readonly boolean[]> {
    return Promise.all(targets.map((target) => this.#revoke(target)));
  }

  list(query: ListQuery, options: ListOptions): Promise<Page<ClaimView>> {
    return listClaims(this.#client, this.#names, this.#tokens, this.#clock.wall(), query, options);
  }

  diagnose() {
    return diagnose(this.#client, this.#leases);
  }

  async close(): Promise<void> {
    this.#events = null;
    this.#watches.close();
    await keepProcessAlive(this.#clock, () => this.#leases.close());
    this.#client.close();
  }

  async #claimInTurn(entry: Entry): Promise<Answer> {
    await this.#releasing.get(entry.queueName);
    return this.#turns.take(async () => {
      entry.pendingTurn = null;
      if (entry.status === "ended") return entry.noneAnswer;
      return this.#refuseCleanly(entry, () => this.#queues.place(entry));
    });
  }

  /** The answer of a claim whose queue was not read. */
  async #toAnswer(entry: Entry): Promise<Answer | undefined> {
    // one that a call before this has just found is unknown until it is read
    if (isLive(entry)) return entry.grant === "held" ? this.#queues.toHeldAnswer(entry) : undefined;
    if (entry.status === "unplaced") return this.#refuseCleanly(entry, () => this.#queues.adopt(entry));
    if (entry.isDeletePending) await this.#queues.delete([entry]);
    return entry.noneAnswer;
  }

  /** A refused claim leaves nothing in the store. */
  async #refuseCleanly(entry: Entry, work: () => Promise<Answer>): Promise<Answer> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof StoreRefusedError && entry.status !== "ended")
        await this.#queues.delete([entry]).catch(() => undefined);
      throw error;
    }
  }

  async #revoke({ key, token, now }: RevokeTarget): Promise<boolean> {
    const target = (await readQueues(this.#client, this.#names, { key })).find(
      ({ isHeld, createRevision, value }) => isHeld && this.#tokens.has(createRevision, value?.tokens ?? 1, token),
    );
    if (target === undefined || (!now && target.value?.isRevoked === true)) return false; // already revoked
    if (!now && target.value === null)
      throw new StoreRefusedError(
        `etcd: the entry of another program on ${JSON.stringify(key)} can only be removed at once`,
      );
    return this.#queues.revoke(target, now);
  }

  /** The servers have no such lease any more, so its entries are gone. */
  #onLeaseEnded({ entries }: Lease): void {
    for (const entry of [...entries]) {
      // a claim under way finds another lease
      if (entry.status === "unplaced") entry.setLease(null);
      else {
        entry.end("expired");
        this.#events?.recheck(entry.claim.id);
      }
    }
  }

  #onFirst(entry: Entry): void {
    if (entry.status !== "present" || entry.grant !== "waiting") return;
    // with a token below its floor it is refused, in the answer to a call
    if (this.#tokens.first(entry.createRevision) < entry.claim.floor) return this.#events?.recheck(entry.claim.id);
    this.#queues.grantNow(entry);
    this.#events?.pushed(entry.claim.id, this.#queues.toHeldAnswer(entry));
    // its own entry may have been deleted as well, and who waits behind it is not known
    this.#onChanged(entry);
  }

  /** The queues of held claims are read here, since a call of the core would extend their leases, too. */
  #onChanged(entry: Entry): void {
    if (entry.grant !== "held" || !isLive(entry)) return this.#events?.recheck(entry.claim.id);
    this.#changed.add(entry);
    // a new stream reports all its watches at once: a read for each would keep the renewals waiting
    if (this.#changed.size === 1) runInMicrotask(() => void this.#lookAtChanged());
  }

  async #lookAtChanged(): Promise<void> {
    const entries = [...this.#changed].filter(isLive);
    this.#changed.clear();
    // if that fails, the next renewal reads what is not covered by its watch
    await this.#queues.look(entries).catch(() => undefined);
    for (const entry of entries) if (!isLive(entry)) this.#events?.recheck(entry.claim.id);
  }
}

/** It waits or is held. A revoked one is not renewed. */
function isLive({ status, grant }: Entry): boolean {
  return status === "present" && grant !== "revoked";
}

/**
 * A held claim of which everything is known without a read: its entry is there on a lease of this client, and whether another one waits
 * for it. Safe, since only the lease makes it held: a deletion of its entry from outside is no more than reported. Live, since whatever happens in
 * its queue makes it uncovered (Watch.since is then later than the read), and a stream that has lost events is not believed: one that
 * does not answer renew()'s confirm() is closed, the server says when it ends a watch, and without its stream no watch covers a claim.
 */
function isWatched({ grant, lease, isCovered }: Entry): boolean {
  return grant === "held" && lease !== null && isCovered;
}
