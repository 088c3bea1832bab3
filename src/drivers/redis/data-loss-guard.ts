/**
 * Notices a store that has lost data. The guard keeps the grants of this client: with the option guardDataLoss it
 * restores lost claims from them; without it, it reports them as lost.
 */

import { FatalDriverError } from "../../errors.ts";
import type { Answer, Check, Claim, ClaimId } from "../../spi/driver.ts";
import { decodeAnswer, isForgottenReply, isMissedGrantReply, parseGraceEnd } from "../reply-codec.ts";
import type { RedisOptions } from "./options.ts";
import { resolveMaxTtlMs } from "./options.ts";
import type { RunScript } from "./script-codec.ts";
import {
  ALL_BUCKETS,
  encodeClaim,
  encodeClaimDetails,
  toNamePrefix,
  toRoutingKey,
  toRunRecordKey,
} from "./script-codec.ts";
import { GRACE } from "./scripts.ts";

interface Grant {
  readonly token: bigint;
  readonly tokenCount: number;
}

/** What the guard keeps of one claim. */
export interface GuardedClaim {
  /** Null: not granted yet. */
  grant: Grant | null;
  /** The quorum driver claims a released id again: a late push may still belong to the earlier claim. */
  readonly wasReleasedBefore: boolean;
}

/** Runs restore.lua for claims, with these arguments; resolves to one reply for each. */
export type RestoreLost = (lost: readonly Claim[], encode: (claim: Claim) => readonly string[]) => Promise<unknown>;

export class DataLossGuard {
  readonly #options: RedisOptions;
  readonly #namePrefix: string;
  readonly #warn: (warning: string) => void;
  /** Makes all claims ask the store now, so that held claims are restored. */
  readonly #onLoss: () => void;
  /** Milliseconds; null: guardDataLoss is off. */
  readonly #maxTtlMs: number | null;
  readonly #claims = new Map<ClaimId, GuardedClaim>();
  /** The end of the grace period as the store last reported it: tells a new loss from a known one. */
  #graceEndsAt = "";
  /** How many held claims the store did not know any more, without an end reason. */
  #lostCount = 0;

  constructor(options: RedisOptions, warn: (warning: string) => void, onLoss: () => void) {
    this.#options = options;
    this.#namePrefix = toNamePrefix(options);
    this.#warn = warn;
    this.#onLoss = onLoss;
    this.#maxTtlMs = resolveMaxTtlMs(options.guardDataLoss);
  }

  /** Script arguments: the key of the run record and the longest ttl. A single server has one record for all buckets. */
  scriptArgs(routingKey: string, isCluster: boolean): readonly [string, string] {
    if (this.#maxTtlMs === null) return ["", "0"];
    const recordKey = toRunRecordKey(isCluster ? routingKey : toRoutingKey(this.#namePrefix, "00"));
    return [recordKey, String(this.#maxTtlMs)];
  }

  /**
   * Called before a claim is sent. `onAnswers` takes the result, with the answer.
   * @throws FatalDriverError if the claim could outlast a grace period
   */
  onClaim(claim: Claim): GuardedClaim {
    const { ttlMs } = claim;
    if (this.#maxTtlMs !== null && Number(ttlMs) > this.#maxTtlMs) {
      const problem = `the ttl of ${ttlMs} ms exceeds guardDataLoss.maxTtlMs (${this.#maxTtlMs} ms)`;
      throw new FatalDriverError(`redis: ${problem}`);
    }
    return this.#track(claim);
  }

  /**
   * Called before claims are renewed. `restoreLost` and `onAnswers` take the result, with the answers: it ties an
   * answer to the claim that was renewed, since after a release the same id may be claimed again.
   */
  onRenew(claims: readonly Claim[]): readonly GuardedClaim[] {
    return claims.map((claim) => this.#track(claim));
  }

  /** Ignores a push for a released claim, or for an earlier claim with the same id. */
  onPush(id: ClaimId, answer: Answer): void {
    const guarded = this.#claims.get(id);
    if (guarded !== undefined && !guarded.wasReleasedBefore) this.#recordAnswer(id, guarded, answer);
  }

  /** Late answers are for the earlier GuardedClaim, and are ignored. */
  onRelease(id: ClaimId): void {
    if (this.#claims.has(id)) this.#claims.set(id, { grant: null, wasReleasedBefore: true });
  }

  forget(id: ClaimId): void {
    this.#claims.delete(id);
  }

  /** Records the answers, and reports a loss of data that they show. */
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
      this.#warn(`redis: the server has lost ${consequence}`);
    }
    if (this.#maxTtlMs === null) return;
    for (const reply of replies) {
      const graceEndsAt = parseGraceEnd(reply);
      if (graceEndsAt !== null) return this.#onDataLoss(graceEndsAt);
    }
  }

  /** Restores held claims that the store has lost, and replaces their answers. */
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
      const { token, tokenCount } = grant;
      const details = encodeClaimDetails({ ...claim, tokenCount, floor: token }, this.#options.label);
      lost.set(claim, [...encodeClaim(claim), ...details, String(token)]);
      indices.push(index);
    }
    if (lost.size === 0) return;
    const restored = await restore([...lost.keys()], (claim) => lost.get(claim) as readonly string[]);
    if (!Array.isArray(restored) || restored.length !== lost.size)
      throw new Error("redis: a script did not answer for every claim");
    for (const [position, index] of indices.entries()) answers[index] = decodeAnswer(restored[position], "redis");
  }

  /**
   * Checks for a loss of data when the driver opens. The first use of a prefix counts as one, too.
   * @throws FatalDriverError if the user lacks permission for INFO
   */
  async checkOnOpen(
    runScript: RunScript,
    scriptHeader: (routingKey: string) => readonly string[],
    isCluster: boolean,
  ): Promise<void> {
    if (this.#maxTtlMs === null) return;
    const routingKeys = (isCluster ? ALL_BUCKETS : ["00"]).map((bucket) => toRoutingKey(this.#namePrefix, bucket));
    try {
      const replies = await Promise.all(
        routingKeys.map((routingKey) => runScript(GRACE, routingKey, scriptHeader(routingKey))),
      );
      const remainingMs = Math.max(
        ...replies.map((reply) => Number((reply as unknown[])[0]) - Number((reply as unknown[])[1])),
      );
      if (remainingMs <= 0 || this.#options.silenceWarnings?.includes("guardDataLoss") === true) return;
      this.#warn(
        `redis: grace period after a possible loss of data or for a new prefix: no locks are granted for ${remainingMs} ms`,
      );
    } catch (error) {
      if (!/\bACL\b|NOPERM|can't run this command/i.test(String(error))) throw error;
      throw new FatalDriverError("redis: guardDataLoss needs the right to INFO (+info)", { cause: error });
    }
  }

  /** The losses of this client, for `holdfast doctor`. */
  diagnose(): Check[] {
    if (this.#lostCount === 0) return [];
    const message = `the server lost ${this.#lostCount} locks that this client held`;
    return [
      {
        status: "warn",
        name: "loss",
        message,
        hint: "check whether it was flushed or restarted, or keys were deleted",
      },
    ];
  }

  /**
   * True if the claim was held and is gone without an end reason. `guarded`: the result of onClaim() or onRenew() for
   * this call.
   */
  #recordAnswer(id: ClaimId, guarded: GuardedClaim, answer: Answer): boolean {
    if (this.#claims.get(id) !== guarded || answer.state === "waiting") return false;
    const wasHeld = guarded.grant !== null;
    guarded.grant = answer.state === "held" ? answer : null;
    return wasHeld && answer.state === "none" && answer.reason === undefined;
  }

  #track({ id }: Claim): GuardedClaim {
    const known = this.#claims.get(id);
    if (known !== undefined) return known;
    const guarded = { grant: null, wasReleasedBefore: false };
    this.#claims.set(id, guarded);
    return guarded;
  }

  /** Renews all claims at once when a new loss is seen, so that held ones are restored within the grace period. */
  #onDataLoss(graceEndsAt: string): void {
    if (this.#graceEndsAt === graceEndsAt) return;
    this.#graceEndsAt = graceEndsAt;
    queueMicrotask(this.#onLoss);
  }
}
