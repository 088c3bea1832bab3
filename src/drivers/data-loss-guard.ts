/**
 * Notices a store that has lost data. With the option guardDataLoss the guard restores lost claims with the tokens that the core
 * holds; without it, it reports them as lost.
 *
 * Invariant: a claim is restored, or reported, only if the core certainly holds it once the store's answer is here. After the end of
 * its lease the store may have granted the key to another client before it lost the data, and that one may come later; and a store
 * that has lost nothing may have removed the claim, whose lease had ended there, too.
 */

import { StoreRefusedError } from "../errors.ts";
import type { Answer, Check, Claim, ClaimId, TokenRange } from "../spi/driver.ts";
import { parseDuration } from "../util/duration.ts";
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
  /** See DriverEvents. */
  readonly heldTokens: (id: ClaimId) => TokenRange | null;
  /** Whether a held claim that the store does not know before its lease has ended proves a loss of data, and is restored, too. */
  readonly restoresUnknown?: boolean;
}

/** A claim to restore, and its tokens. */
export interface LostClaim extends TokenRange {
  readonly claim: Claim;
}

/** Restores claims in the store; resolves to one reply for each. */
export type RestoreLost = (lost: readonly LostClaim[]) => Promise<unknown>;

export class DataLossGuard {
  readonly #settings: GuardSettings;
  /** The end of the grace period as the store last reported it: tells a new loss from a known one. */
  #graceEndsAt = "";
  /** How many held claims the store did not know any more, without an end reason. */
  #lostCount = 0;

  constructor(settings: GuardSettings) {
    this.#settings = settings;
  }

  /** Called when the driver opens, with what is left of a grace period. */
  onOpen(remainingMs: number, silencedWarnings: readonly string[] = []): void {
    if (remainingMs <= 0 || silencedWarnings.includes("guardDataLoss")) return;
    const { driverName, warn } = this.#settings;
    const cause = "grace period after a possible loss of data or for a new prefix";
    warn(`${driverName}: ${cause}: no locks are granted for ${remainingMs} ms`);
  }

  /** Called before a claim is sent. @throws StoreRefusedError if the claim could outlast a grace period */
  checkTtl({ ttlMs }: Claim): void {
    const { driverName, maxTtlMs } = this.#settings;
    if (maxTtlMs === null || Number(ttlMs) <= maxTtlMs) return;
    const problem = `the ttl of ${ttlMs} ms exceeds guardDataLoss.maxTtlMs (${maxTtlMs} ms)`;
    throw new StoreRefusedError(`${driverName}: ${problem}`);
  }

  /** Reports a loss of data that answers show, before the core gets them. `replies`: what the store said. */
  onAnswers(claims: readonly Claim[], answers: readonly Answer[], replies: readonly unknown[]): void {
    const { driverName, storeName, maxTtlMs, warn } = this.#settings;
    const lostCount = claims.filter(({ id }, index) => this.#isUnknown(id, answers[index] as Answer)).length;
    this.#lostCount += lostCount;
    if (lostCount > 0) {
      const consequence =
        lostCount === 1
          ? "a lock that this client held: its holder is notified, and it may have been granted to others"
          : `${lostCount} locks that this client held: their holders are notified, and they may have been granted to others`;
      warn(`${driverName}: ${storeName} has lost ${consequence}`);
    }
    if (maxTtlMs === null) return;
    for (const reply of replies) {
      const graceEndsAt = parseGraceEnd(reply);
      if (graceEndsAt !== null) return this.#onDataLoss(graceEndsAt);
    }
  }

  /** Restores held claims that the store has lost, and replaces their answers. */
  async restoreLost(
    claims: readonly Claim[],
    replies: readonly unknown[],
    answers: Answer[],
    restore: RestoreLost,
  ): Promise<void> {
    if (this.#settings.maxTtlMs === null) return;
    const lost: LostClaim[] = [];
    const indices: number[] = [];
    for (const [index, claim] of claims.entries()) {
      const tokens = this.#isLost(claim.id, replies[index], answers[index] as Answer)
        ? this.#settings.heldTokens(claim.id)
        : null;
      if (tokens === null) continue;
      lost.push({ claim, ...tokens });
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

  #isLost(id: ClaimId, reply: unknown, answer: Answer): boolean {
    if (isForgottenReply(reply) || isMissedGrantReply(reply)) return true;
    return this.#settings.restoresUnknown === true && this.#isUnknown(id, answer);
  }

  /** The claim is held, and the store does not know it, without an end reason. */
  #isUnknown(id: ClaimId, answer: Answer): boolean {
    return answer.state === "none" && answer.reason === undefined && this.#settings.heldTokens(id) !== null;
  }

  /** Renews all claims at once when a new loss is seen, so that held ones are restored within the grace period. */
  #onDataLoss(graceEndsAt: string): void {
    if (this.#graceEndsAt === graceEndsAt) return;
    this.#graceEndsAt = graceEndsAt;
    queueMicrotask(this.#settings.onLoss);
  }
}
