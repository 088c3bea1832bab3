/**
 * Notices a store that has lost data. The guard keeps the grants of this client: with the option guardDataLoss it
 * restores lost claims from them; without it, it reports them as lost.
 *
 * Invariant: a claim is restored, or reported, only while its lease has not ended by this client's clocks. After that the store
 * may have granted the key to another client before it lost the data, and that one may come later; and a store that has lost
 * nothing may have removed the claim, whose lease had ended there, too.
 */

import { believedUntil } from "../claim/lease-deadline.ts";
import { FatalDriverError } from "../errors.ts";
import type { Answer, Check, Claim, ClaimId } from "../spi/driver.ts";
import type { Clock } from "../util/clock.ts";
import { parseDuration } from "../util/duration.ts";
import { SlotMap } from "../util/slot-map.ts";
import { SuspendDetector } from "../util/suspend-detector.ts";
import { isObject, millisecondsRule, noProblem, validateOptions } from "../util/validate.ts";
import { decodeAnswer, isForgottenReply, isMissedGrantReply, parseGraceEnd } from "./reply-codec.ts";

/** How the driver meets a store that has lost data. All clients of a prefix need the same settings. */
export interface GuardDataLossOptions {
  /**
   * Longest ttl of a claim, in milliseconds. A store that has lost data grants nothing new for so long; Redis, if it is
   * less than 4 s, for up to 4 s after a restart or a promotion. Default 60 s.
   */
  readonly maxTtlMs?: number;
}

/** The rule of the option `guardDataLoss`. */
export function guardDataLossRule(value: unknown): string | null {
  if (typeof value === "boolean") return null;
  if (!isObject(value)) return "true, false or { maxTtlMs }";
  const maxTtlMs = millisecondsRule(100, 86_400_000);
  return noProblem(
    validateOptions<GuardDataLossOptions>("guardDataLoss", value, { maxTtlMs }, { prefix: "guardDataLoss." }),
  );
}

/** The longest ttl in milliseconds; null: guardDataLoss is off. */
export function resolveMaxTtlMs(option: boolean | GuardDataLossOptions | undefined): number | null {
  if (option === undefined || option === false) return null;
  return option === true ? 60_000 : (option.maxTtlMs ?? 60_000);
}

/** The option as the parameter of a url: "true", or the longest ttl such as "30s". @throws TypeError */
export function parseGuardDataLoss(text: string): true | { readonly maxTtlMs: number } {
  return text === "true" ? true : { maxTtlMs: parseDuration(text, "guardDataLoss") };
}

/** What a guard needs of its driver. */
export interface GuardSettings {
  /** Begins the messages. */
  readonly driverName: string;
  /** What warnings call the store: "the server". */
  readonly storeName: string;
  /** null: guardDataLoss is off. */
  readonly maxTtlMs: number | null;
  readonly warn: (warning: string) => void;
  /** Makes all claims ask the store now, so that held claims are restored. */
  readonly onLoss: () => void;
  readonly clock: Clock;
  /** Whether a held claim that the store does not know before its lease has ended proves a loss of data, and is restored, too. */
  readonly restoresUnknown?: boolean;
}

/** A claim to restore, and its grant. */
export interface LostClaim extends Grant {
  readonly claim: Claim;
}

/** Restores claims in the store; resolves to one reply for each. */
export type RestoreLost = (lost: readonly LostClaim[]) => Promise<unknown>;

interface Grant {
  readonly token: bigint;
  readonly tokenCount: number;
}

/** What the guard keeps of one claim. */
export interface GuardedClaim {
  /** Null: not granted yet. */
  grant: Grant | null;
  /** Until when its lease certainly lasts, on the scale of now(): the core counts it in the same way. */
  leaseEndsAt: number;
  /** The quorum driver claims a released id again: a late push may still belong to the earlier claim. */
  readonly wasReleasedBefore: boolean;
}

export class DataLossGuard {
  readonly #settings: GuardSettings;
  readonly #claims = new SlotMap<ClaimId, GuardedClaim>();
  readonly #suspendDetector: SuspendDetector;
  /** The total time for which this machine was suspended. */
  #suspendedMs = 0;
  /** The end of the grace period as the store last reported it: tells a new loss from a known one. */
  #graceEndsAt = "";
  /** How many held claims the store did not know any more, without an end reason. */
  #lostCount = 0;

  constructor(settings: GuardSettings) {
    this.#settings = settings;
    this.#suspendDetector = new SuspendDetector(settings.clock);
  }

  /** The time by which leases are counted here: it includes suspensions. Read it before a call is sent. */
  now(): number {
    const now = this.#settings.clock.now();
    this.#suspendedMs += this.#suspendDetector.suspendedMs(now);
    return now + this.#suspendedMs;
  }

  /** Called when the driver opens, with what is left of a grace period. */
  onOpen(remainingMs: number, silencedWarnings: readonly string[] = []): void {
    if (remainingMs <= 0 || silencedWarnings.includes("guardDataLoss")) return;
    const { driverName, warn } = this.#settings;
    const cause = "grace period after a possible loss of data or for a new prefix";
    warn(`${driverName}: ${cause}: no locks are granted for ${remainingMs} ms`);
  }

  /**
   * Called before a claim is sent. `onAnswers` takes the result, with the answer.
   * @throws FatalDriverError if the claim could outlast a grace period
   */
  onClaim(claim: Claim): GuardedClaim {
    const { ttlMs } = claim;
    const { driverName, maxTtlMs } = this.#settings;
    if (maxTtlMs !== null && Number(ttlMs) > maxTtlMs) {
      const problem = `the ttl of ${ttlMs} ms exceeds guardDataLoss.maxTtlMs (${maxTtlMs} ms)`;
      throw new FatalDriverError(`${driverName}: ${problem}`);
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
    if (this.#claims.has(id)) this.#claims.set(id, { grant: null, leaseEndsAt: 0, wasReleasedBefore: true });
  }

  forget(id: ClaimId): void {
    this.#claims.delete(id);
  }

  /** Records the answers, and reports a loss of data that they show. `sentAt`: now() when their call was sent. */
  onAnswers(
    claims: readonly Claim[],
    guarded: readonly GuardedClaim[],
    answers: readonly Answer[],
    replies: readonly unknown[],
    sentAt: number,
  ): void {
    let lostCount = 0;
    for (const [index, { id, ttlMs }] of claims.entries()) {
      const [target, answer] = [guarded[index] as GuardedClaim, answers[index] as Answer];
      if (answer.state !== "none") {
        const endsAt = believedUntil(sentAt, answer.remainingMs, Number(ttlMs));
        target.leaseEndsAt = Math.max(target.leaseEndsAt, endsAt);
      }
      if (this.#recordAnswer(id, target, answer)) lostCount++;
    }
    this.#lostCount += lostCount;
    if (lostCount > 0) {
      const consequence =
        lostCount === 1
          ? "a lock that this client held: its holder is notified, and it may have been granted to others"
          : `${lostCount} locks that this client held: their holders are notified, and they may have been granted to others`;
      this.#settings.warn(`${this.#settings.driverName}: ${this.#settings.storeName} has lost ${consequence}`);
    }
    if (this.#settings.maxTtlMs === null) return;
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
    const lost: LostClaim[] = [];
    const indices: number[] = [];
    for (const [index, claim] of claims.entries()) {
      const target = guarded[index] as GuardedClaim;
      const grant = this.#claims.get(claim.id) === target ? target.grant : null;
      if (grant === null || !this.#isLost(target, replies[index], answers[index] as Answer)) continue;
      const { token, tokenCount } = grant;
      lost.push({ claim, token, tokenCount });
      indices.push(index);
    }
    if (lost.length === 0) return;
    const { driverName } = this.#settings;
    const restored = await restore(lost);
    if (!Array.isArray(restored) || restored.length !== lost.length)
      throw new Error(`${driverName}: the store did not answer for every claim`);
    for (const [position, index] of indices.entries()) answers[index] = decodeAnswer(restored[position], driverName);
  }

  /** The losses of this client, for `holdfast doctor`. */
  diagnose(): Check[] {
    if (this.#lostCount === 0) return [];
    const message = `${this.#settings.storeName} lost ${this.#lostCount} locks that this client held`;
    return [
      {
        status: "warn",
        name: "loss",
        message,
        hint: "check whether it was flushed or restarted, or keys were deleted",
      },
    ];
  }

  #isLost({ leaseEndsAt }: GuardedClaim, reply: unknown, answer: Answer): boolean {
    const { maxTtlMs, restoresUnknown = false } = this.#settings;
    if (maxTtlMs === null || this.now() >= leaseEndsAt) return false;
    if (isForgottenReply(reply) || isMissedGrantReply(reply)) return true;
    return restoresUnknown && answer.state === "none" && answer.reason === undefined;
  }

  /**
   * True if the claim was held and is gone without an end reason, before its lease has ended. `guarded`: the result of
   * onClaim() or onRenew() for this call.
   */
  #recordAnswer(id: ClaimId, guarded: GuardedClaim, answer: Answer): boolean {
    if (this.#claims.get(id) !== guarded || answer.state === "waiting") return false;
    const wasHeld = guarded.grant !== null;
    guarded.grant = answer.state === "held" ? answer : null;
    if (!wasHeld || answer.state !== "none" || answer.reason !== undefined) return false;
    return this.now() < guarded.leaseEndsAt;
  }

  #track({ id }: Claim): GuardedClaim {
    const known = this.#claims.get(id);
    if (known !== undefined) return known;
    const guarded = { grant: null, leaseEndsAt: 0, wasReleasedBefore: false };
    this.#claims.set(id, guarded);
    return guarded;
  }

  /** Renews all claims at once when a new loss is seen, so that held ones are restored within the grace period. */
  #onDataLoss(graceEndsAt: string): void {
    if (this.#graceEndsAt === graceEndsAt) return;
    this.#graceEndsAt = graceEndsAt;
    queueMicrotask(this.#settings.onLoss);
  }
}
