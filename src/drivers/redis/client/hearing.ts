/**
 * What is published to us: one inbox for the whole store, or in a Cluster one for every bucket in use, on the master that
 * has it. It keeps each inbox where its bucket's commands go, through breaks, fail-over and slots that move. It pauses only
 * between attempts to subscribe: of claims it knows nothing.
 *
 * Invariants
 * - An inbox is in order only when a message sent the way our commands go was counted there as heard, and was heard by us.
 *   So it is on that very master, and all that was said to it before has passed.
 * - A push counts as an answer only if its inbox was in order in the present life of the link; else it is a nudge.
 * - Whoever waits hears, or finds out that he does not: a connection that went away without a word shows it by nothing.
 */

import { setTimeout as pause } from "node:timers/promises";
import { isRefusal, plain } from "../trouble.ts";
import { sayingOf } from "../words.ts";
import type { Ears, Link } from "./shapes.ts";

/** Milliseconds after which an attempt to bring an inbox in order is given up. */
const ATTEMPT_MS = 2_000;
/** Milliseconds after which ears that have heard nothing are asked whether they hear, if somebody waits. */
const SILENCE_MS = 5_000;
/** Longest pause between attempts, in milliseconds. */
const LONGEST_PAUSE_MS = 1_000;
/** Inboxes that come back together are told of together: so many milliseconds after the first. */
const GATHER_MS = 10;
/** What begins so was sent by ourselves to see that we hear. */
const PROOF = "?";
/** In a Cluster published before every grant, to count who listens; elsewhere replicas hear no grant (lua/line/admission.lua). */
const KNOCK = "";
/** Milliseconds after which a knock that no grant followed is a sign: it was heard, but we were not counted. */
const KNOCK_MS = 20;

export interface HearingOptions {
  readonly link: Link;
  /** The channel of a route. */
  readonly channelOf: (route: string) => string;
  readonly send: (words: string[], route: string) => Promise<unknown>;
  /** Counts the breaks of the link. */
  readonly life: () => number;
  /** Something was said to us. `isAnswer`: it may be taken at its word. */
  readonly heard: (message: string, isAnswer: boolean) => void;
  /** Anything may have been missed. */
  readonly missed: () => void;
}

interface Inbox {
  readonly route: string;
  readonly channel: string;
  /** The node it was last in order at. */
  node: string | null;
  /** The life in which it was last brought in order; -1: it is not. */
  soundIn: number;
  /** Counts what may have brought it out of order. */
  doubts: number;
  isTended: boolean;
  wasSound: boolean;
  /** Knocks that nothing has followed yet. */
  knocks: number;
  knocked: NodeJS.Timeout | null;
  heardProof: (proof: string) => void;
  waiting: { resolve(): void; reject(error: unknown): void }[];
}

interface Listener {
  readonly ears: Promise<Ears>;
  /** When it last heard anything; null: not yet. */
  heardAt: number | null;
  /** When it was last asked whether it does. */
  askedAt: number;
}

export class Hearing {
  readonly #options: HearingOptions;
  /** By their channels. */
  readonly #inboxes = new Map<string, Inbox>();
  /** By the names of nodes. */
  readonly #listeners = new Map<string, Listener>();
  readonly #ending = new AbortController();
  #gathering: NodeJS.Timeout | null = null;
  #proofs = 0;

  constructor(options: HearingOptions) {
    this.#options = options;
  }

  /** Null if what is published to the inbox of this route is heard, or was before and will be again; else settles when it is. */
  listening(route: string): Promise<void> | null {
    const channel = this.#options.channelOf(route);
    let inbox = this.#inboxes.get(channel);
    if (inbox?.wasSound === true) return null;
    if (inbox === undefined) {
      inbox = {
        route,
        channel,
        node: null,
        soundIn: -1,
        doubts: 0,
        isTended: false,
        wasSound: false,
        knocks: 0,
        knocked: null,
        heardProof: () => undefined,
        waiting: [],
      };
      this.#inboxes.set(channel, inbox);
    }
    const { waiting } = inbox;
    const settled = new Promise<void>((resolve, reject) => waiting.push({ resolve, reject }));
    void this.#tend(inbox);
    return settled;
  }

  /** Commands went this way: if that is another node by now, the inbox follows. `waits`: somebody waits for a push there. */
  went(route: string, waits: boolean): void {
    const inbox = this.#inboxes.get(this.#options.channelOf(route));
    if (inbox?.wasSound !== true || inbox.isTended) return;
    if (inbox.node !== this.#options.link.nodeOf(route)) this.#doubt(inbox);
    else if (waits) void this.#prove(inbox, inbox.node ?? "");
  }

  /** The link broke, or came back: every inbox may be in the wrong place. */
  doubtAll(): void {
    for (const inbox of this.#inboxes.values()) this.#doubt(inbox);
  }

  close(): void {
    this.#ending.abort();
    if (this.#gathering !== null) clearTimeout(this.#gathering);
    for (const { waiting, knocked } of this.#inboxes.values()) {
      if (knocked !== null) clearTimeout(knocked);
      for (const { reject } of waiting.splice(0)) reject(new Error("redis: the driver was closed"));
    }
    this.#inboxes.clear();
    for (const { ears } of this.#listeners.values()) void quietly(ears.then((made) => made.end()));
    this.#listeners.clear();
  }

  #doubt(inbox: Inbox): void {
    inbox.doubts++;
    inbox.soundIn = -1;
    void this.#tend(inbox);
  }

  /** Tries until the inbox is in order. */
  async #tend(inbox: Inbox): Promise<void> {
    if (inbox.isTended) return;
    inbox.isTended = true;
    for (let failures = 0; !this.#ending.signal.aborted; ) {
      const { doubts } = inbox;
      const life = this.#options.life();
      const isSound = await this.#isSound(inbox);
      if (isSound && doubts === inbox.doubts && life === this.#options.life()) {
        this.#sound(inbox, life);
        return;
      }
      if (isSound) continue;
      failures++;
      const most = Math.min(LONGEST_PAUSE_MS, 20 * 2 ** failures);
      await quietly(pause(Math.random() * most, null, { ref: false, signal: this.#ending.signal }));
    }
  }

  #sound(inbox: Inbox, life: number): void {
    const wasSound = inbox.wasSound;
    inbox.isTended = false;
    inbox.wasSound = true;
    inbox.soundIn = life;
    for (const { resolve } of inbox.waiting.splice(0)) resolve();
    if (!wasSound || this.#gathering !== null) return;
    this.#gathering = setTimeout(() => {
      this.#gathering = null;
      this.#options.missed();
    }, GATHER_MS).unref();
  }

  async #isSound(inbox: Inbox): Promise<boolean> {
    if (!this.#options.link.isReady) return false;
    const attempt = new AbortController();
    const late = pause(ATTEMPT_MS, null, { signal: attempt.signal }).catch(() => null);
    const isSound = await Promise.race([this.#attempt(inbox), late]);
    attempt.abort();
    const node = inbox.node ?? "";
    // those that heard once, and do not any more, never will
    if (isSound === null && this.#listeners.get(node)?.heardAt != null) this.#drop(node);
    return isSound === true;
  }

  async #attempt(inbox: Inbox): Promise<boolean> {
    const { route, channel } = inbox;
    const node = this.#options.link.nodeOf(route);
    try {
      if (node === null) throw new Error("redis: nobody is known to have this slot");
      inbox.node = node;
      const ears = await this.#earsAt(node, route);
      await ears.subscribe(channel);
    } catch (error) {
      // it is for whoever waits for the inbox; who has it already goes on by rechecks
      if (isRefusal(error)) for (const { reject } of inbox.waiting.splice(0)) reject(plain(error));
      // the library learns where the slot is by a command that goes astray
      await quietly(this.#publish(inbox, PROOF));
      return false;
    }
    return this.#isHeard(inbox, node).catch(() => false); // the next attempt tells
  }

  /** Does a message that goes the way of our commands come back to us, and was it we who were counted? */
  async #isHeard(inbox: Inbox, node: string): Promise<boolean> {
    const proof = `${PROOF}${++this.#proofs}`;
    const heard = new Promise<void>((resolve) => {
      inbox.heardProof = (said) => {
        if (said === proof) resolve();
      };
    });
    if (Number(await this.#publish(inbox, proof)) === 0) {
      // these ears are on another server than our commands go to: a new connection finds the right one
      if (this.#options.link.nodeOf(inbox.route) === node) this.#drop(node);
      return false;
    }
    await heard;
    return true;
  }

  /** Ears that are silent are asked whether they hear, as often as waiting claims are renewed, and are deaf if they never do. */
  async #prove(inbox: Inbox, node: string): Promise<void> {
    const listener = this.#listeners.get(node);
    const now = performance.now();
    if (listener?.heardAt == null || now - listener.heardAt < SILENCE_MS) return;
    const isAsked = listener.askedAt > listener.heardAt;
    if (isAsked && now - listener.askedAt >= ATTEMPT_MS) this.#drop(node);
    if (isAsked) return;
    listener.askedAt = now;
    try {
      if (Number(await this.#publish(inbox, PROOF)) === 0) this.#doubt(inbox);
    } catch {
      listener.askedAt = 0; // that is known of the link, and not of the ears
    }
  }

  #publish({ channel, route }: Inbox, message: string): Promise<unknown> {
    const { link, send } = this.#options;
    return send(sayingOf(route, channel, message, link.isCluster), route);
  }

  #earsAt(node: string, route: string): Promise<Ears> {
    const known = this.#listeners.get(node);
    if (known !== undefined) return known.ears;
    const ears = Promise.resolve(
      this.#options.link.ears(route, {
        heard: (channel, message) => {
          listener.heardAt = performance.now();
          this.#heard(channel, message);
        },
        broken: () => {
          if (this.#listeners.get(node) === listener) this.#drop(node);
        },
        unsettled: () => this.#doubtAt(node),
      }),
    );
    const listener: Listener = { ears, heardAt: null, askedAt: 0 };
    this.#listeners.set(node, listener);
    ears.catch(() => this.#listeners.delete(node));
    return ears;
  }

  #doubtAt(node: string): void {
    for (const inbox of this.#inboxes.values()) if (inbox.node === node) this.#doubt(inbox);
  }

  #drop(node: string): void {
    const listener = this.#listeners.get(node);
    this.#listeners.delete(node);
    if (listener !== undefined) void quietly(listener.ears.then((made) => made.end()));
    this.#doubtAt(node);
  }

  #heard(channel: string, message: string): void {
    const inbox = this.#inboxes.get(channel);
    if (inbox === undefined) return;
    if (message === KNOCK) return this.#knock(inbox);
    if (message.startsWith(PROOF)) return inbox.heardProof(message);
    if (inbox.knocks > 0) inbox.knocks--;
    this.#options.heard(message, inbox.soundIn === this.#options.life());
  }

  /** On a replica, where a fail-over may leave it, an inbox hears the knocks of its master and is not counted there. */
  #knock(inbox: Inbox): void {
    inbox.knocks++;
    inbox.knocked ??= setTimeout(() => {
      inbox.knocked = null;
      if (inbox.knocks === 0) return;
      inbox.knocks = 0;
      this.#doubt(inbox);
    }, KNOCK_MS).unref();
  }
}

/** What is tried anew by whoever calls it, and so needs no word. */
const quietly = (work: Promise<unknown>): Promise<unknown> => work.catch(() => undefined);
