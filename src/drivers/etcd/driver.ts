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
import { publicTag } from "../../util/ids.ts";
import { keepProcessAlive, withTimeout } from "../../util/timeout.ts";
import { toConnectTimeoutMs } from "../connect-timeout.ts";
import { Gateway } from "./client/gateway.ts";
import { WatchStream } from "./client/watch-stream.ts";
import { diagnose, requireVersion } from "./diagnostics.ts";
import type { Lease } from "./entry.ts";
import { Entries, Entry } from "./entry.ts";
import { Leases } from "./leases.ts";
import { listClaims, readQueue } from "./list.ts";
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
  readonly #entries: Entries;
  readonly #gateway: Gateway;
  readonly #leases: Leases;
  readonly #stream: WatchStream;
  readonly #watches: EntryWatches;
  readonly #queues: EntryQueues;
  /** By the queue's name: releases under way. A claim of this client for the same key comes after them. */
  readonly #releasing = new Map<string, Promise<unknown>>();
  #claimsUnderWay = 0;
  readonly #claimsToSend: (() => void)[] = [];
  #events: DriverEvents | null = null;

  constructor(options: EtcdOptions) {
    this.#options = options;
    const { clock = systemClock, prefix = DEFAULT_PREFIX, compatible = true, tokenBase = 0n } = options;
    const { servers, user, password, tls, commandTimeoutMs: timeoutMs = DEFAULT_TIMEOUT_MS } = options;
    this.#clock = clock;
    const names = new Names(prefix, compatible);
    this.#names = names;
    this.#entries = new Entries((claim) => {
      const queueName = names.toQueueName(claim.locks[0].key);
      return new Entry(claim, queueName, `${queueName}${publicTag(claim.id)}`);
    });
    const onEnd = this.#entries.end.bind(this.#entries);
    const gatewayOptions = { servers, timeoutMs, clock, ...(user !== undefined && { user, password: password ?? "" }) };
    this.#gateway = new Gateway(
      tls === undefined ? gatewayOptions : { ...gatewayOptions, tls: typeof tls === "function" ? tls : () => tls },
      () => {
        this.#stream.reopen();
        this.#events?.disconnected();
      },
    );
    this.#leases = new Leases({
      ...{ gateway: this.#gateway, clock },
      probeKey: names.probeKey,
      onEnded: (lease) => this.#onLeaseEnded(lease),
      onOverdue: (entry) => onEnd(entry, "expired"),
    });
    this.#stream = new WatchStream({
      open: (events) => this.#gateway.openStream("/v3/watch", events),
      ...{ clock, timeoutMs, random: Math.random },
      onBreak: () => this.#events?.disconnected(),
      onReopened: () => this.#events?.reconnected(),
    });
    this.#watches = new EntryWatches({
      ...{ stream: this.#stream, clock, onEnd },
      onFirst: (entry) => this.#onFirst(entry),
      onChanged: ({ claim }) => this.#events?.recheck(claim.id),
      onUnknown: (entry) => void this.#onUnknown(entry),
    });
    this.#queues = new EntryQueues({
      ...{ leases: this.#leases, watches: this.#watches, names, clock, tokenBase, onEnd },
      onWanted: ({ claim }) => this.#events?.recalled(claim.id),
    });
  }

  async open(events: DriverEvents): Promise<Traits> {
    const timeoutMs = toConnectTimeoutMs(this.#options.connectTimeout);
    await keepProcessAlive(this.#clock, () =>
      withTimeout(this.#clock, timeoutMs, this.#connect(), () =>
        Promise.reject(new Error(`etcd: no member has answered within ${timeoutMs} ms`)),
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
    const now = this.#clock.now();
    const known = claims.map((claim) => this.#entries.find(claim));
    const present = known.filter((entry) => entry !== undefined && isLive(entry)) as Entry[];
    for (const entry of present) entry.dueAt = now + entry.ttlMs;
    const leases = new Set(present.map(({ lease }) => lease).filter((lease) => lease !== null));
    // a stream that is silent is opened again, and costs no lease
    const isConfirmed = present.length > 0 && this.#stream.confirm(Math.min(...present.map(({ ttlMs }) => ttlMs)) / 4);
    await Promise.all([
      ...[...leases].map((lease) => this.#leases.extend(lease)),
      present.some(isWatched) && isConfirmed,
    ]);
    // with an active watch on its entry a held claim needs no request of its own
    const answers = await this.#queues.look(present.filter((entry) => isLive(entry) && !isWatched(entry)));
    return Promise.all(
      claims.map(async (claim, index): Promise<Answer | undefined> => {
        const entry = known[index] ?? this.#entries.getOrCreate(claim);
        // one that a call before this has just found is unknown until it is read
        if (isLive(entry))
          return answers.get(entry) ?? (entry.grant === "held" ? this.#queues.toHeldAnswer(entry) : undefined);
        if (entry.status === "unplaced") return this.#refuseCleanly(entry, () => this.#queues.adopt(entry));
        if (entry.isDeletePending) await this.#queues.delete([entry]);
        return entry.noneAnswer;
      }),
    );
  }

  async release(releases: readonly Release[]): Promise<readonly boolean[]> {
    const entries = releases.map(({ claim }) => this.#entries.getOrCreate(claim));
    const queueNames = new Set(entries.map(({ queueName }) => queueName));
    const done = this.#release(releases, entries);
    const settled = done.catch(() => undefined);
    for (const name of queueNames) this.#releasing.set(name, settled);
    void settled.then(() => {
      for (const name of queueNames) if (this.#releasing.get(name) === settled) this.#releasing.delete(name);
    });
    return done;
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
    const context = {
      gateway: this.#gateway,
      names: this.#names,
      queues: this.#queues,
      wall: () => this.#clock.wall(),
    };
    return listClaims(context, query, options);
  }

  diagnose() {
    return diagnose(this.#gateway, this.#names.probeKey);
  }

  async close(): Promise<void> {
    this.#events = null;
    this.#watches.close();
    this.#stream.close();
    await keepProcessAlive(this.#clock, () => this.#leases.close());
    this.#gateway.close();
  }

  async #claimInTurn(entry: Entry): Promise<Answer> {
    await this.#releasing.get(entry.queueName);
    if (this.#claimsUnderWay === MAX_CLAIMS) await new Promise<void>((resolve) => this.#claimsToSend.push(resolve));
    else this.#claimsUnderWay++;
    entry.pendingTurn = null;
    try {
      if (entry.status === "ended") return entry.noneAnswer;
      return await this.#refuseCleanly(entry, () => this.#queues.place(entry));
    } finally {
      const next = this.#claimsToSend.shift();
      if (next === undefined) this.#claimsUnderWay--;
      else next();
    }
  }

  async #connect(): Promise<void> {
    await requireVersion(this.#gateway);
    // a right that is missing shows here
    await this.#leases.verifyAccess();
  }

  async #release(releases: readonly Release[], entries: readonly Entry[]): Promise<readonly boolean[]> {
    // a claim may be among them twice, and a transaction writes no key twice
    const arriving = new Set(
      entries.filter((entry, index) => entry.isShared || releases[index]?.hasUnansweredClaim === true),
    );
    const mayArrive = [...arriving];
    const others = [...new Set(entries)].filter((entry) => !arriving.has(entry));
    const existed = new Map<Entry, boolean | undefined>();
    const record = (part: readonly Entry[], results: readonly boolean[]): void => {
      for (const [index, entry] of part.entries()) existed.set(entry, results[index]);
    };
    record(others, await this.#queues.delete(others));
    if (mayArrive.length > 0) {
      const lease = await this.#leases.grantDetached(Math.max(...mayArrive.map(({ ttlMs }) => ttlMs)));
      // a call that arrives very late puts its entry on the claim's lease, which others extend: the tombstone lasts as long
      const toLease = (entry: Entry): string => (entry.isShared ? lease : (entry.lease?.id ?? lease));
      // and the lease no longer than its claims: new ones get another
      for (const entry of mayArrive) if (entry.lease !== null) this.#leases.retire(entry.lease);
      record(mayArrive, await this.#queues.delete(mayArrive, toLease));
    }
    return entries.map((entry) => existed.get(entry) === true);
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
    const queue = await readQueue(this.#gateway, this.#names.toQueueName(key));
    const target = queue.find((entry) => entry.isHeld && this.#queues.hasToken(entry, token));
    if (target === undefined) return false;
    const { value } = target;
    if (!now && value?.isRevoked === true) return false; // already revoked
    if (!now && value === null)
      throw new StoreRefusedError(
        `etcd: the entry of another program on ${JSON.stringify(key)} can only be removed at once`,
      );
    return this.#queues.revoke(target, value, now);
  }

  /** The servers have no such lease any more, so its entries are gone. */
  #onLeaseEnded({ entries }: Lease): void {
    for (const entry of [...entries]) {
      // a claim under way finds another lease
      if (entry.status === "unplaced") entry.setLease(null);
      else {
        this.#entries.end(entry, "expired");
        this.#events?.recheck(entry.claim.id);
      }
    }
  }

  #onFirst(entry: Entry): void {
    if (entry.status !== "present" || entry.grant !== "waiting") return;
    // with a token below its floor it is refused, in the answer to a call
    if (this.#queues.toToken(entry.createRevision) < entry.claim.floor) return this.#events?.recheck(entry.claim.id);
    this.#queues.grantNow(entry);
    this.#events?.pushed(entry.claim.id, this.#queues.toHeldAnswer(entry));
    // its own entry may have been deleted as well, and who waits behind it is not known
    void this.#onUnknown(entry);
  }

  /** Reads the queue of a held claim, which extends no lease. */
  async #onUnknown(entry: Entry): Promise<void> {
    if (!isLive(entry)) return;
    try {
      await this.#queues.lookAgain(entry);
    } catch {
      return; // the next renewal reads it, since the claim is not covered
    }
    if (!isLive(entry)) this.#events?.recheck(entry.claim.id);
  }
}

/** It waits or is held. A revoked one is not renewed. */
function isLive({ status, grant }: Entry): boolean {
  return status === "present" && grant !== "revoked";
}

/** A held claim whose entry is watched, on a lease of this client; of one that can be recalled the queue is read. */
function isWatched({ grant, watched, name, lease, isRecallable, isCovered }: Entry): boolean {
  return grant === "held" && watched === name && lease !== null && isCovered && !isRecallable;
}
