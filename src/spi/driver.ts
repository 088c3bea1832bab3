/**
 * THE contract between Holdfast and a store: the only file a driver author must read. A driver holds no loop, no timer
 * and no retry about claims; the core waits, renews and asks again. `holdfast/conformance` tells what is missing.
 */

export { FatalDriverError } from "../errors.ts";
export { ALL_PERMITS, MAX_LOCKS } from "../lock-table/admission.ts";

/** Names one claim for ever. Made by the core (130 random bits in base32, 26 characters): safe in keys, paths and SQL. A secret. */
export type ClaimId = string;

/** What a claim wants of one key. */
export interface LockSpec {
  /** The key, checked by the core: 1–512 bytes of UTF-8, no control characters. Compare it byte by byte. */
  readonly key: string;
  /** Permits to take, 1 … limit. ALL_PERMITS of ALL_PERMITS is exclusive. */
  readonly permits: number;
  /** Permits that may be out at once, as this claim sees it. Differing claims may meet; each obeys its own. */
  readonly limit: number;
}

/**
 * A request to hold keys: waiting or held, it is the same claim. It enters the lines of its keys one after another in
 * key order, the next only when it is admitted in the one before, and is held when it is admitted in the last.
 * The object stays the same for the claim's whole life, so a driver may attach notes to it with a WeakMap.
 */
export interface Claim {
  readonly id: ClaimId;
  /** One hold per key, sorted by key (by UTF-16 code units), at least one and at most MAX_LOCKS, no key twice. */
  readonly holds: readonly [LockSpec, ...LockSpec[]];
  /**
   * How long the store keeps the claim, waiting or held, after it was last claimed or renewed; "session": as long as
   * the client's session lives (only where traits.lease has sessionMs).
   */
  readonly ttlMs: number | "session";
  /** Consecutive fencing tokens to set aside if granted, at least 1. A store may give fewer. */
  readonly tokens: number;
  /** No token below this may be granted: the highest this client has seen on these keys, plus one. 0n if none. */
  readonly floor: bigint;
  /** false: if it cannot be granted at once, leave no trace. true: keep a place in line. */
  readonly wait: boolean;
  /** For people who look at lists of claims: host, process, what for. Never used for identity. */
  readonly label: string;
}

/** How a claim that is gone ended, where the store still knows. maxHold: it was held for longer than the store allows. */
export type EndReason = "expired" | "released" | "revoked" | "maxHold";

/** Why a lock is no longer ours: how its claim ended, held for too long, or the store just does not know it. */
export type LostReason = EndReason | "unknown";

/**
 * Why a store grants nothing new to anyone for a while. recovery: it was restarted, and its clients tell it what they hold.
 * gracePeriod: it may have lost data, and waits until whatever was granted before has ended.
 */
export type PauseReason = "recovery" | "gracePeriod";

/** A time in which a store grants nothing new to anyone. */
export interface Pause {
  readonly reason: PauseReason;
  /** About how long still, in milliseconds, counted as ttlMs is; it may end sooner. */
  readonly remainingMs: number;
}

/**
 * What the store knows of one claim. Reply, poll result and push are all this one type.
 * ttlMs is what is left of the lease by the store's clock when it answered, sessionMs for "session"; the core counts it
 * from the send. storeMs, where a driver has it: the store's wall clock when it answered; the core watches it for steps.
 */
export type Answer =
  /** Granted. Tokens token … token+tokens−1 belong to it and to no other claim on these keys. */
  | {
      readonly state: "held";
      readonly token: bigint;
      readonly tokens: number;
      readonly ttlMs: number;
      readonly storeMs?: number;
    }
  /** In line. Ask again after recheckMs at the latest, even if nothing is pushed. paused: nothing new is granted to anyone. */
  | {
      readonly state: "waiting";
      readonly ttlMs: number;
      readonly recheckMs: number;
      readonly storeMs?: number;
      readonly paused?: Pause;
    }
  /**
   * Not there, and no trace of it in any line: never placed, expired, or released. For a held claim this means it is lost.
   * paused: it was not granted because the store grants nothing new to anyone, not because somebody is known to hold its
   * keys: unknown is not busy.
   */
  | { readonly state: "none"; readonly reason?: EndReason; readonly paused?: Pause };

/**
 * The store's way to speak first.
 *   notify(id, answer)  this claim's answer is now this
 *   notify(id)          this claim's answer may have changed; the core will ask
 *   notify(null)        anything may have been missed (reconnected); the core will ask about all
 * May be late, repeated or lost. The core asks again by itself, so a driver that never calls it is correct. An answer
 * counts only if it came over the connection (the same life of the store) that answered the claim's last call: on
 * reconnect a driver drops everything of the old one, then calls notify(null). Never call it from inside a verb's call.
 */
export type Notify = (id: ClaimId | null, answer?: Answer) => void;

/** What differs between stores and the core must know; final once open() has settled. Chooses no algorithm in the driver. */
export interface Traits {
  /**
   * claim: every claim may have its own ttlMs. sessionMs: a session of that length can carry claims. At least one.
   * silenceKeeps: a session claim does not end by silence (a Unix socket): a passed deadline means ask.
   */
  readonly lease: { readonly claim: boolean; readonly sessionMs?: number; readonly silenceKeeps?: boolean };
  /** Can one claim hold several keys? If not, the core takes them one at a time, in key order, as claims of their own. */
  readonly manyKeys: boolean;
  /** "any": permits and limits are obeyed. "shared": only 1 or ALL_PERMITS of ALL_PERMITS. "one": only all. */
  readonly permits: "any" | "shared" | "one";
  /** Are tokens rising for ever per key, across restarts? If not, reading lock.token throws UnsupportedError. */
  readonly fencing: boolean;
  /** Are claims admitted in order of arrival? */
  readonly fifo: boolean;
  /** What a grant outlives: shown to users and in docs. */
  readonly survives: "process" | "restart" | "failover";
}

/** A claim as tools see it: without its id, which is a secret; an operator addresses it by key and token. */
export interface ClaimView extends Omit<Claim, "id"> {
  /** First 10 characters of base32(SHA-256(id)): the same claim has the same tag, and nobody can act by it. */
  readonly tag: string;
  readonly answer: Answer;
  /** Milliseconds since the store first saw the claim. */
  readonly ageMs: number;
  /** Milliseconds since it was granted, where it is held and the store knows. */
  readonly heldMs?: number;
}

/** A grant that an operator wants back, named by a key and a token of it. */
export interface RevokeTarget {
  readonly key: string;
  readonly token: bigint;
  /** At once, while its holder may still be working. */
  readonly now: boolean;
  /** For people: a store with a log or events tells it there. */
  readonly reason?: string;
}

/**
 * What a list is about: the claims any of whose keys begins with `prefix`, or those in the queue of one `key`. The queue
 * of a key is read to name who holds it, often when many waits end at once, so it must be cheap: nothing else is read,
 * and where a claim's label, age and tokens cost a request each, only those of the first claim need be told ("", 0 and 0n
 * are what is not known). Claims over several keys that have not come to this queue yet, and those that are passed over
 * while their client is away, need not be in it.
 */
export type ListFilter =
  | { readonly prefix: string; readonly key?: undefined }
  | { readonly key: string; readonly prefix?: undefined };

/** One thing that was looked at, for people: what `holdfast doctor` prints. */
export interface Check {
  /** unknown: it could not be found out, which is no fault. */
  readonly level: "good" | "bad" | "doubtful" | "unknown";
  /** One word: "version", "memory". */
  readonly what: string;
  readonly says: string;
  readonly advice?: string;
}

/**
 * A store that can keep lines of claims.
 *
 * Every call is one short exchange: it never waits for another claim to be released and never retries. Calls may
 * overlap; for one claim the core waits for each to settle, or gives up on it, before the next. Throw whatever the
 * client throws: the core treats any error as "outcome unknown" and asks again; throw FatalDriverError to stop that.
 * Time is the store's own: never send this process's wall clock.
 */
export interface Driver {
  readonly name: string;
  readonly traits: Traits;

  /** Make ready (connect, load scripts, create tables). Called before anything else, and again if it failed. */
  open(notify: Notify): Promise<void>;

  /** Place the claim, or if its id is known find it (restarting its lease), and say where it stands. */
  claim(claim: Claim): Promise<Answer>;

  /**
   * Extend these claims, waiting and held alike, and say where each stands, in the same order. Places nothing new, but a
   * waiting claim over several keys goes on to its next lines, and a driver that guards against data loss may re-place
   * held claims that a store lost, with their tokens. A claim missing from a line it had entered is removed from the
   * others and answered "none". Also the poll: while more than three quarters of a lease are left, a driver may look
   * without writing; the answer then says what is really left. What could not be found out for one claim is left out
   * (undefined), so that the others do not suffer for it.
   */
  renew(claims: readonly Claim[]): Promise<readonly (Answer | undefined)[]>;

  /**
   * Optional: names the part of the store that keeps this claim, where parts fail by themselves (the nodes of a Cluster).
   * The core renews and releases each part's claims in calls of their own: one in trouble holds up no other.
   */
  shardOf?(claim: Claim): string;

  /**
   * Remove these claims, waiting or held; say for each whether it was still there. Announce who is admitted now.
   * The ids in unanswered still have a `claim` call under way: remember them for one ttl and answer it "none", so that
   * a late duplicate cannot take a place nobody wants.
   */
  release(claims: readonly Claim[], unanswered?: ReadonlySet<ClaimId>): Promise<readonly boolean[]>;

  /**
   * Optional; needed only where claims belong to a session. Take these claims out of this client's session: their lease
   * is a plain, full ttl from now on, or `leftMs` where that is less; whoever renews such a claim restarts the full ttl.
   * Says for each whether it was there and held.
   */
  detach?(claims: readonly Claim[], leftMs?: number): Promise<readonly boolean[]>;

  /**
   * Optional. Ask the holders of these keys with these tokens to go: a revoked claim answers "none" and cannot be
   * renewed, but keeps its place until it is released or its lease ends; with `now` it is removed at once. A token may be
   * any of a grant's run. Says for each whether it was there.
   */
  revoke?(targets: readonly RevokeTarget[]): Promise<readonly boolean[]>;

  /**
   * Live claims, front of the queue first, from after a cursor (a tag). May be a little stale. Once the signal is aborted
   * nobody waits for the answer: nothing further is asked of the store, and the promise settles either way.
   */
  list(filter: ListFilter, max: number, after?: string, signal?: AbortSignal): Promise<readonly ClaimView[]>;

  /**
   * Optional, for tools: what of this store matters to locks (version, role, settings), each in plain words. Reads only,
   * and only after open(); what this user may not look at is "unknown".
   */
  diagnose?(): Promise<readonly Check[]>;

  /** Let go of what open() made; a client passed in by the user stays open. Claims are released by the core first. */
  close(): Promise<void>;
}
