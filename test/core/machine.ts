/** Drives one claim's machine by hand. */

import { adopt, begin, believes, step, wakeAt } from "../../src/core/claim.ts";
import type { ClaimEvent, ClaimState, Effect, Step, Terms } from "../../src/core/claim-state.ts";
import type { Answer } from "../../src/spi/driver.ts";

const TERMS: Terms = { ttlMs: 30_000, wait: true, endures: false, renews: true };

export function heldAnswer(ttlMs = 30_000, token = 100n, tokens = 1): Answer {
  return { state: "held", token, tokens, ttlMs };
}

export function waitingAnswer(ttlMs = 30_000, recheckMs = 30_000): Answer {
  return { state: "waiting", ttlMs, recheckMs };
}

export const NONE: Answer = { state: "none" };

export class Machine {
  readonly terms: Terms;
  state: ClaimState;
  now: number;
  /** When each call was sent, by its number. */
  readonly sent = new Map<number, number>();
  /** The effects of the last event. */
  effects: readonly Effect[] = [];

  constructor(terms: Partial<Terms> = {}, start: (terms: Terms) => Step = (given) => begin(given, 0)) {
    this.terms = { ...TERMS, ...terms };
    this.now = 0;
    const first = start(this.terms);
    this.state = first.state;
    this.#note(first);
  }

  /** A claim that is taken up. */
  static adopted(terms: Partial<Terms> = {}): Machine {
    return new Machine(terms, (given) => adopt(given, 0, 100n, 1));
  }

  /** A claim that waits, its first call answered at once. */
  static waiting(terms: Partial<Terms> = {}, answer: Answer = waitingAnswer()): Machine {
    return new Machine(terms).answered(answer);
  }

  /** A claim that is held, its first call answered at once. */
  static held(terms: Partial<Terms> = {}, answer: Answer = heldAnswer()): Machine {
    return new Machine(terms).answered(answer);
  }

  get call(): number {
    return "talk" in this.state ? this.state.talk.calls : 0;
  }

  get believes(): boolean {
    return believes(this.state, this.now);
  }

  get wakesAt(): number {
    return wakeAt(this.state, this.terms);
  }

  at(now: number): this {
    this.now = now;
    return this;
  }

  on(event: ClaimEvent): this {
    const next = step(this.state, event, this.now, this.terms);
    this.state = next.state;
    this.#note(next);
    return this;
  }

  /** The last call, or that one, is answered now. */
  answered(answer: Answer, call: number = this.call): this {
    return this.on({ type: "answered", call, sentAt: this.sent.get(call) ?? Number.NaN, answer });
  }

  failed(fatal = false, call: number = this.call): this {
    return this.on({ type: "failed", call, fatal, random: 1 });
  }

  pushed(answer: Answer): this {
    return this.on({ type: "pushed", answer });
  }

  notified(): this {
    return this.on({ type: "notified" });
  }

  due(withinMs = 0): this {
    return this.on({ type: "due", random: 1, withinMs });
  }

  slept(byMs: number): this {
    return this.on({ type: "slept", byMs });
  }

  left(): this {
    return this.on({ type: "left" });
  }

  #note({ effects }: Step): void {
    this.effects = effects;
    if (effects.includes("ask") || effects.includes("renew")) this.sent.set(this.call, this.now);
  }
}
