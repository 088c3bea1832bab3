/**
 * A store that forgot (option guardDataLoss). What it granted us is kept here, so that it can be placed anew; and what it
 * no longer knows is noticed, with the option and without.
 */

import { FatalDriverError } from "../../errors.ts";
import type { Answer, Check, Claim, ClaimId } from "../../spi/driver.ts";
import type { RunScript } from "./connection.ts";
import {
  ALL_BUCKETS,
  decodeAnswer,
  encodeClaim,
  encodeClaimDetails,
  isForgottenReply,
  isMissedGrantReply,
  parseGraceEnd,
  toRoutingKey,
  toRunRecordKey,
} from "./script-codec.ts";
import { GRACE } from "./scripts.ts";

/** How a store that forgot is met. The same for every client of a prefix. */
export interface GuardDataLossOptions {
  /**
   * No claim is longer than this, in milliseconds: so long does a store that forgot grant nothing new (if it is less than 4 s,
   * up to 4 s after a restart or a promotion). Default 60 s.
   */
  readonly maxTtlMs?: number;
}

export interface DataLossGuardOptions {
  readonly namePrefix: string;
  /** Milliseconds; null: no guard. */
  readonly maxTtlMs: number | null;
  readonly label: string | undefined;
  readonly warn: (warning: string) => void;
  /** Is the grace period at the beginning not to be warned of? */
  readonly isOpenWarningSilenced: boolean;
  /** Whoever holds must ask now. */
  readonly onDataLoss: () => void;
}

interface Grant {
  readonly token: bigint;
  readonly tokens: number;
}

/** One claim that came through. */
export interface GuardedClaim {
  /** Null: asked for, not granted yet. */
  grant: Grant | null;
  /** Placed again under an id that was released before, as a majority does: a push may still be of the earlier place. */
  readonly wasReleasedBefore: boolean;
  readonly ttlMs: number;
  /** When it was last asked or heard of. */
  lastSeenAt: number;
}

/** So many released ids are remembered, to know one that is placed again. */
const MAX_RELEASED_IDS = 4_096;

/** Claims are looked through for those whose leases are long over when there are so many, and then twice as many as are left. */
const FIRST_SWEEP_SIZE = 1_000;

/** Places held claims anew, these words being theirs, and gives what the store says of each. */
export type RestoreLost = (lost: readonly Claim[], encode: (claim: Claim) => readonly string[]) => Promise<unknown>;

/** The longest ttl in milliseconds; null: no guard. */
export function resolveMaxTtlMs(option: boolean | GuardDataLossOptions | undefined): number | null {
  if (option === undefined || option === false) return null;
  return option === true ? 60_000 : (option.maxTtlMs ?? 60_000);
}

export class DataLossGuard {
  readonly #options: DataLossGuardOptions;
  /** What we asked for and have not released. Who is detached, or whose lease ends, is never released. */
  readonly #claims = new Map<ClaimId, GuardedClaim>();
  #sweepAt = FIRST_SWEEP_SIZE;
  /** The last ids that were released, the oldest first. */
  readonly #releasedIds = new Set<ClaimId>();
  /** Until when the store grants nothing new, as it told last: a loss that we know of. */
  #graceEndsAt = "";
  /** How many grants the store did not know any more, without any of the ends that it tells of. */
  #lostCount = 0;

  constructor(options: DataLossGuardOptions) {
    this.#options = options;
  }

  /** What scripts are told: the record to heed, and the longest ttl there is. On one server all buckets have one record. */
  scriptArgs(routingKey: string, isCluster: boolean): readonly [string, string] {
    const { namePrefix, maxTtlMs } = this.#options;
    if (maxTtlMs === null) return ["", "0"];
    return [isCluster ? toRunRecordKey(routingKey) : toRunRecordKey(toRoutingKey(namePrefix, "00")), String(maxTtlMs)];
  }

  /**
   * A claim is placed; gives what `onAnswers` wants with its answer.
   * @throws FatalDriverError if the claim could outlast the time in which nothing new is granted
   */
  onClaim(claim: Claim): GuardedClaim {
    const { ttlMs } = claim;
    const { maxTtlMs } = this.#options;
    if (maxTtlMs !== null && Number(ttlMs) > maxTtlMs) {
      throw new FatalDriverError(`redis: the ttl of ${ttlMs} ms exceeds guardDataLoss.maxTtlMs (${maxTtlMs} ms)`);
    }
    return this.#track(claim);
  }

  /**
   * Claims are renewed; gives what `restoreLost` and `onAnswers` want with the answers. A grant counts only for the place that was
   * asked about: an answer that comes after its release says nothing of a later place of the same id.
   */
  onRenew(claims: readonly Claim[]): readonly GuardedClaim[] {
    return claims.map((claim) => this.#track(claim));
  }

  /** A push may be for a claim that we have given up, or for an earlier place of its id. */
  onPush(id: ClaimId, answer: Answer): void {
    const guarded = this.#claims.get(id);
    if (guarded !== undefined && !guarded.wasReleasedBefore) this.#recordAnswer(id, guarded, answer);
  }

  onRelease(id: ClaimId): void {
    if (!this.#claims.delete(id) || this.#options.maxTtlMs === null) return;
    this.#releasedIds.add(id);
    if (this.#releasedIds.size <= MAX_RELEASED_IDS) return;
    for (const oldest of this.#releasedIds) {
      this.#releasedIds.delete(oldest);
      return;
    }
  }

  /** Notes what these claims were told, and a loss of data that is seen by it. */
  onAnswers(
    claims: readonly Claim[],
    guarded: readonly GuardedClaim[],
    answers: readonly Answer[],
    replies: readonly unknown[],
  ): void {
    let lostCount = 0;
    for (const [index, { id }] of claims.entries()) {
      if (this.#recordAnswer(id, guarded[index] as GuardedClaim, answers[index] as Answer)) lostCount++;
    }
    this.#lostCount += lostCount;
    if (lostCount > 0) {
      const consequence =
        lostCount === 1
          ? "a lock that this client held: its holder is notified, and it may have been granted to others"
          : `${lostCount} locks that this client held: their holders are notified, and they may have been granted to others`;
      this.#options.warn(`redis: the server has lost ${consequence}`);
    }
    if (this.#options.maxTtlMs === null) return;
    for (const reply of replies) {
      const graceEndsAt = parseGraceEnd(reply);
      if (graceEndsAt !== null) return this.#onDataLoss(graceEndsAt);
    }
  }

  /** What we hold and the store has forgotten is placed anew; the answers become what it says then. */
  async restoreLost(
    claims: readonly Claim[],
    guarded: readonly GuardedClaim[],
    replies: readonly unknown[],
    answers: Answer[],
    restore: RestoreLost,
  ): Promise<void> {
    const lost = new Map<Claim, readonly string[]>();
    const indices: number[] = [];
    for (const [index, claim] of claims.entries()) {
      const grant = this.#claims.get(claim.id) === guarded[index] ? (guarded[index] as GuardedClaim).grant : null;
      if (grant === null || !(isForgottenReply(replies[index]) || isMissedGrantReply(replies[index]))) continue;
      const { token, tokens } = grant;
      const details = encodeClaimDetails({ ...claim, tokens, floor: token }, this.#options.label);
      lost.set(claim, [...encodeClaim(claim), ...details, String(token)]);
      indices.push(index);
    }
    if (lost.size === 0) return;
    const restored = await restore([...lost.keys()], (claim) => lost.get(claim) as readonly string[]);
    if (!Array.isArray(restored) || restored.length !== lost.size)
      throw new Error("redis: a script did not answer for every claim");
    for (const [position, index] of indices.entries()) answers[index] = decodeAnswer(restored[position]);
  }

  /**
   * Has the store forgotten? Asked when a driver opens: the first use of a prefix counts as that, too.
   * @throws FatalDriverError if we may not ask
   */
  async checkOnOpen(
    runScript: RunScript,
    scriptHeader: (routingKey: string) => readonly string[],
    isCluster: boolean,
  ): Promise<void> {
    const { namePrefix, maxTtlMs, isOpenWarningSilenced, warn } = this.#options;
    if (maxTtlMs === null) return;
    const routingKeys = (isCluster ? ALL_BUCKETS : ["00"]).map((bucket) => toRoutingKey(namePrefix, bucket));
    try {
      const replies = await Promise.all(
        routingKeys.map((routingKey) => runScript(GRACE, routingKey, scriptHeader(routingKey))),
      );
      const remainingMs = Math.max(
        ...replies.map((reply) => Number((reply as unknown[])[0]) - Number((reply as unknown[])[1])),
      );
      if (remainingMs <= 0 || isOpenWarningSilenced) return;
      warn(`redis: the server has lost its data, or the prefix is new: it grants no new locks for ${remainingMs} ms`);
    } catch (error) {
      if (!/\bACL\b|NOPERM|can't run this command/i.test(String(error))) throw error;
      throw new FatalDriverError("redis: guardDataLoss needs the right to INFO (+info)", { cause: error });
    }
  }

  /** What this client has lost, for tools. */
  diagnose(): Check[] {
    if (this.#lostCount === 0) return [];
    const says = `the server lost ${this.#lostCount} locks that this client held`;
    return [
      {
        level: "doubtful",
        what: "loss",
        says,
        advice: "check whether it was flushed or restarted, or keys were deleted",
      },
    ];
  }

  /** Was it held, and is gone without any of the ends that the store tells of? `guarded`: as it was when it was asked about. */
  #recordAnswer(id: ClaimId, guarded: GuardedClaim, answer: Answer): boolean {
    if (this.#claims.get(id) !== guarded) return false;
    if (answer.state === "none") {
      this.#claims.delete(id);
      return guarded.grant !== null && answer.reason === undefined;
    }
    guarded.lastSeenAt = performance.now();
    if (answer.state === "held") guarded.grant = answer;
    return false;
  }

  #track({ id, ttlMs }: Claim): GuardedClaim {
    return this.#claims.get(id) ?? this.#add(id, ttlMs);
  }

  #add(id: ClaimId, ttlMs: Claim["ttlMs"]): GuardedClaim {
    const guarded = {
      grant: null,
      wasReleasedBefore: this.#releasedIds.has(id),
      ttlMs: Number(ttlMs),
      lastSeenAt: performance.now(),
    };
    this.#claims.set(id, guarded);
    if (this.#claims.size < this.#sweepAt) return guarded;
    for (const [oldId, { ttlMs: oldTtlMs, lastSeenAt }] of this.#claims) {
      if (lastSeenAt + 2 * oldTtlMs < guarded.lastSeenAt) this.#claims.delete(oldId);
    }
    this.#sweepAt = Math.max(FIRST_SWEEP_SIZE, 2 * this.#claims.size);
    return guarded;
  }

  /** Those who hold must ask now, to place their claims anew. */
  #onDataLoss(graceEndsAt: string): void {
    if (this.#graceEndsAt === graceEndsAt) return;
    this.#graceEndsAt = graceEndsAt;
    queueMicrotask(this.#options.onDataLoss);
  }
}
