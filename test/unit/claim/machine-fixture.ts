/** Drives one claim's machine by hand. */

import { isHeld, nextWakeAt, startClaim, step } from "../../../src/claim/machine.ts";
import { resumeClaim } from "../../../src/claim/resume.ts";
import type { ClaimEvent, ClaimSettings, ClaimState, Effect, Step } from "../../../src/claim/state.ts";
import type { Answer } from "../../../src/spi/driver.ts";

const DEFAULT_SETTINGS: ClaimSettings = { ttlMs: 30_000, wait: true, survivesSilence: false, renews: true };

export function heldAnswer(remainingMs = 30_000, token = 100n, tokenCount = 1): Answer {
  return { state: "held", token, tokenCount, remainingMs };
}

export function waitingAnswer(remainingMs = 30_000, recheckMs = 30_000): Answer {
  return { state: "waiting", remainingMs, recheckMs };
}

export const NONE_ANSWER: Answer = { state: "none" };

export class MachineFixture {
  readonly settings: ClaimSettings;
  state: ClaimState;
  now: number;
  /** When each call was sent, by its number. */
  readonly sentCalls = new Map<number, number>();
  /** The effects of the last event. */
  effects: readonly Effect[] = [];

  constructor(
    settings: Partial<ClaimSettings> = {},
    start: (terms: ClaimSettings) => Step = (claimSettings) => startClaim(claimSettings, 0),
  ) {
    this.settings = { ...DEFAULT_SETTINGS, ...settings };
    this.now = 0;
    const first = start(this.settings);
    this.state = first.state;
    this.#record(first);
  }

  /** An attached claim. */
  static resumed(settings: Partial<ClaimSettings> = {}): MachineFixture {
    return new MachineFixture(settings, (claimSettings) => resumeClaim(claimSettings, 0, 100n, 1));
  }

  /** A waiting claim, its first call answered at once. */
  static answeredWaiting(settings: Partial<ClaimSettings> = {}, answer: Answer = waitingAnswer()): MachineFixture {
    return new MachineFixture(settings).answered(answer);
  }

  /** A held claim, its first call answered at once. */
  static answeredHeld(settings: Partial<ClaimSettings> = {}, answer: Answer = heldAnswer()): MachineFixture {
    return new MachineFixture(settings).answered(answer);
  }

  get call(): number {
    return "callState" in this.state ? this.state.callState.calls : 0;
  }

  get isHeld(): boolean {
    return isHeld(this.state, this.now);
  }

  get nextWakeAt(): number {
    return nextWakeAt(this.state, this.settings);
  }

  at(now: number): this {
    this.now = now;
    return this;
  }

  apply(event: ClaimEvent): this {
    const next = step(this.state, event, this.now, this.settings);
    this.state = next.state;
    this.#record(next);
    return this;
  }

  clockStepped(epoch: number): this {
    return this.apply({ type: "clockStepped", epoch });
  }

  /** Answers the last call, or the given one, now; it was sent in this epoch. */
  answered(answer: Answer, call: number = this.call, epoch = 0): this {
    return this.apply({ type: "answered", call, sentAt: this.sentCalls.get(call) ?? Number.NaN, epoch, answer });
  }

  failCall(isFatal = false, call: number = this.call): this {
    return this.apply({ type: "failed", call, isFatal, random: 1 });
  }

  pushed(answer: Answer): this {
    return this.apply({ type: "pushed", answer });
  }

  recheck(): this {
    return this.apply({ type: "recheck" });
  }

  due(withinMs = 0): this {
    return this.apply({ type: "due", random: 1, withinMs });
  }

  suspend(byMs: number): this {
    return this.apply({ type: "suspended", byMs });
  }

  release(): this {
    return this.apply({ type: "released" });
  }

  #record({ effects }: Step): void {
    this.effects = effects;
    if (effects.includes("ask") || effects.includes("renew")) this.sentCalls.set(this.call, this.now);
  }
}
