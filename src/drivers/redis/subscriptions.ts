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
import type { ClientAdapter, Subscriber } from "./clients/types.ts";
import { isPermissionError, sanitizeError } from "./errors.ts";
import { buildPublishCommand } from "./script-codec.ts";

/** Milliseconds after which an attempt to bring an inbox in order is given up. */
const ATTEMPT_TIMEOUT_MS = 2_000;
/** Milliseconds after which ears that have heard nothing are asked whether they hear, if somebody waits. */
const PROBE_AFTER_MS = 5_000;
/** Longest pause between attempts, in milliseconds. */
const MAX_BACKOFF_MS = 1_000;
/** Inboxes that come back together are told of together: so many milliseconds after the first. */
const MISSED_DELAY_MS = 10;
/** What begins so was sent by ourselves to see that we hear. */
const PROBE_PREFIX = "?";
/** In a Cluster published before every grant, to count who listens; elsewhere replicas hear no grant (lua/lib/admission.lua). */
const PING = "";
/** Milliseconds after which a knock that no grant followed is a sign: it was heard, but we were not counted. */
const PING_TIMEOUT_MS = 20;

export interface SubscriptionsOptions {
  readonly adapter: ClientAdapter;
  /** The channel of a route. */
  readonly toChannel: (routingKey: string) => string;
  readonly send: (args: string[], routingKey: string) => Promise<unknown>;
  /** Counts the breaks of the link. */
  readonly getEpoch: () => number;
  /** Something was said to us. `isAnswer`: it may be taken at its word. */
  readonly onPush: (message: string, isAnswer: boolean) => void;
  /** Anything may have been missed. */
  readonly onMissed: () => void;
}

interface Inbox {
  readonly routingKey: string;
  readonly channel: string;
  /** The node it was last in order at. */
  node: string | null;
  /** The life in which it was last brought in order; -1: it is not. */
  verifiedInEpoch: number;
  /** Counts what may have brought it out of order. */
  invalidationCount: number;
  isVerifying: boolean;
  wasVerified: boolean;
  /** Knocks that nothing has followed yet. */
  unansweredPings: number;
  pingTimer: NodeJS.Timeout | null;
  onProbe: (probe: string) => void;
  waiters: { resolve(): void; reject(error: unknown): void }[];
}

interface SubscriberState {
  readonly subscriber: Promise<Subscriber>;
  /** When it last heard anything; null: not yet. */
  lastMessageAt: number | null;
  /** When it was last asked whether it does. */
  lastProbeAt: number;
}

export class Subscriptions {
  readonly #options: SubscriptionsOptions;
  /** By their channels. */
  readonly #inboxes = new Map<string, Inbox>();
  /** By the names of nodes. */
  readonly #subscribers = new Map<string, SubscriberState>();
  readonly #closeController = new AbortController();
  #missedTimer: NodeJS.Timeout | null = null;
  #probeCount = 0;

  constructor(options: SubscriptionsOptions) {
    this.#options = options;
  }

  /** Null if what is published to the inbox of this route is heard, or was before and will be again; else settles when it is. */
  ensureSubscribed(routingKey: string): Promise<void> | null {
    const channel = this.#options.toChannel(routingKey);
    let inbox = this.#inboxes.get(channel);
    if (inbox?.wasVerified === true) return null;
    if (inbox === undefined) {
      inbox = {
        routingKey,
        channel,
        node: null,
        verifiedInEpoch: -1,
        invalidationCount: 0,
        isVerifying: false,
        wasVerified: false,
        unansweredPings: 0,
        pingTimer: null,
        onProbe: () => undefined,
        waiters: [],
      };
      this.#inboxes.set(channel, inbox);
    }
    const { waiters } = inbox;
    const ready = new Promise<void>((resolve, reject) => waiters.push({ resolve, reject }));
    void this.#ensureVerified(inbox);
    return ready;
  }

  /** Commands went this way: if that is another node by now, the inbox follows. `isWaiting`: somebody waits for a push there. */
  onCommandRouted(routingKey: string, isWaiting: boolean): void {
    const inbox = this.#inboxes.get(this.#options.toChannel(routingKey));
    if (inbox?.wasVerified !== true || inbox.isVerifying) return;
    if (inbox.node !== this.#options.adapter.resolveMaster(routingKey)) this.#invalidate(inbox);
    else if (isWaiting) void this.#probeIfSilent(inbox, inbox.node ?? "");
  }

  /** The link broke, or came back: every inbox may be in the wrong place. */
  invalidateAll(): void {
    for (const inbox of this.#inboxes.values()) this.#invalidate(inbox);
  }

  close(): void {
    this.#closeController.abort();
    if (this.#missedTimer !== null) clearTimeout(this.#missedTimer);
    for (const { waiters, pingTimer } of this.#inboxes.values()) {
      if (pingTimer !== null) clearTimeout(pingTimer);
      for (const { reject } of waiters.splice(0)) reject(new Error("redis: the driver was closed"));
    }
    this.#inboxes.clear();
    for (const { subscriber } of this.#subscribers.values())
      void ignoreErrors(subscriber.then((opened) => opened.disconnect()));
    this.#subscribers.clear();
  }

  #invalidate(inbox: Inbox): void {
    inbox.invalidationCount++;
    inbox.verifiedInEpoch = -1;
    void this.#ensureVerified(inbox);
  }

  /** Tries until the inbox is in order. */
  async #ensureVerified(inbox: Inbox): Promise<void> {
    if (inbox.isVerifying) return;
    inbox.isVerifying = true;
    for (let failures = 0; !this.#closeController.signal.aborted; ) {
      const { invalidationCount } = inbox;
      const epoch = this.#options.getEpoch();
      const isVerified = await this.#verify(inbox);
      if (isVerified && invalidationCount === inbox.invalidationCount && epoch === this.#options.getEpoch()) {
        this.#markVerified(inbox, epoch);
        return;
      }
      if (isVerified) continue;
      failures++;
      const maxBackoffMs = Math.min(MAX_BACKOFF_MS, 20 * 2 ** failures);
      await ignoreErrors(
        pause(Math.random() * maxBackoffMs, null, { ref: false, signal: this.#closeController.signal }),
      );
    }
  }

  #markVerified(inbox: Inbox, epoch: number): void {
    const wasVerified = inbox.wasVerified;
    inbox.isVerifying = false;
    inbox.wasVerified = true;
    inbox.verifiedInEpoch = epoch;
    for (const { resolve } of inbox.waiters.splice(0)) resolve();
    if (!wasVerified || this.#missedTimer !== null) return;
    this.#missedTimer = setTimeout(() => {
      this.#missedTimer = null;
      this.#options.onMissed();
    }, MISSED_DELAY_MS).unref();
  }

  async #verify(inbox: Inbox): Promise<boolean> {
    if (!this.#options.adapter.isReady) return false;
    const attempt = new AbortController();
    const timeout = pause(ATTEMPT_TIMEOUT_MS, null, { signal: attempt.signal }).catch(() => null);
    const isVerified = await Promise.race([this.#subscribeAndProbe(inbox), timeout]);
    attempt.abort();
    const node = inbox.node ?? "";
    // those that heard once, and do not any more, never will
    if (isVerified === null && this.#subscribers.get(node)?.lastMessageAt != null) this.#dropSubscriber(node);
    return isVerified === true;
  }

  async #subscribeAndProbe(inbox: Inbox): Promise<boolean> {
    const { routingKey, channel } = inbox;
    const node = this.#options.adapter.resolveMaster(routingKey);
    try {
      if (node === null) throw new Error("redis: no known master serves this slot");
      inbox.node = node;
      const subscriber = await this.#subscriberAt(node, routingKey);
      await subscriber.subscribe(channel);
    } catch (error) {
      // it is for whoever waits for the inbox; who has it already goes on by rechecks
      if (isPermissionError(error)) for (const { reject } of inbox.waiters.splice(0)) reject(sanitizeError(error));
      // the library learns where the slot is by a command that goes astray
      await ignoreErrors(this.#publish(inbox, PROBE_PREFIX));
      return false;
    }
    return this.#isProbeReceived(inbox, node).catch(() => false); // the next attempt tells
  }

  /** Does a message that goes the way of our commands come back to us, and was it we who were counted? */
  async #isProbeReceived(inbox: Inbox, node: string): Promise<boolean> {
    const probe = `${PROBE_PREFIX}${++this.#probeCount}`;
    const received = new Promise<void>((resolve) => {
      inbox.onProbe = (message) => {
        if (message === probe) resolve();
      };
    });
    if (Number(await this.#publish(inbox, probe)) === 0) {
      // these ears are on another server than our commands go to: a new connection finds the right one
      if (this.#options.adapter.resolveMaster(inbox.routingKey) === node) this.#dropSubscriber(node);
      return false;
    }
    await received;
    return true;
  }

  /** Ears that are silent are asked whether they hear, as often as waiting claims are renewed, and are deaf if they never do. */
  async #probeIfSilent(inbox: Inbox, node: string): Promise<void> {
    const state = this.#subscribers.get(node);
    const now = performance.now();
    if (state?.lastMessageAt == null || now - state.lastMessageAt < PROBE_AFTER_MS) return;
    const isProbePending = state.lastProbeAt > state.lastMessageAt;
    if (isProbePending && now - state.lastProbeAt >= ATTEMPT_TIMEOUT_MS) this.#dropSubscriber(node);
    if (isProbePending) return;
    state.lastProbeAt = now;
    try {
      if (Number(await this.#publish(inbox, PROBE_PREFIX)) === 0) this.#invalidate(inbox);
    } catch {
      state.lastProbeAt = 0; // that is known of the link, and not of the ears
    }
  }

  #publish({ channel, routingKey }: Inbox, message: string): Promise<unknown> {
    const { adapter, send } = this.#options;
    return send(buildPublishCommand(routingKey, channel, message, adapter.isCluster), routingKey);
  }

  #subscriberAt(node: string, routingKey: string): Promise<Subscriber> {
    const knownState = this.#subscribers.get(node);
    if (knownState !== undefined) return knownState.subscriber;
    const subscriber = Promise.resolve(
      this.#options.adapter.openSubscriber(routingKey, {
        onMessage: (channel, message) => {
          state.lastMessageAt = performance.now();
          this.#onMessage(channel, message);
        },
        onDisconnected: () => {
          if (this.#subscribers.get(node) === state) this.#dropSubscriber(node);
        },
        onMaybeUnsubscribed: () => this.#invalidateAt(node),
      }),
    );
    const state: SubscriberState = { subscriber, lastMessageAt: null, lastProbeAt: 0 };
    this.#subscribers.set(node, state);
    subscriber.catch(() => this.#subscribers.delete(node));
    return subscriber;
  }

  #invalidateAt(node: string): void {
    for (const inbox of this.#inboxes.values()) if (inbox.node === node) this.#invalidate(inbox);
  }

  #dropSubscriber(node: string): void {
    const state = this.#subscribers.get(node);
    this.#subscribers.delete(node);
    if (state !== undefined) void ignoreErrors(state.subscriber.then((opened) => opened.disconnect()));
    this.#invalidateAt(node);
  }

  #onMessage(channel: string, message: string): void {
    const inbox = this.#inboxes.get(channel);
    if (inbox === undefined) return;
    if (message === PING) return this.#onPing(inbox);
    if (message.startsWith(PROBE_PREFIX)) return inbox.onProbe(message);
    if (inbox.unansweredPings > 0) inbox.unansweredPings--;
    this.#options.onPush(message, inbox.verifiedInEpoch === this.#options.getEpoch());
  }

  /** On a replica, where a fail-over may leave it, an inbox hears the knocks of its master and is not counted there. */
  #onPing(inbox: Inbox): void {
    inbox.unansweredPings++;
    inbox.pingTimer ??= setTimeout(() => {
      inbox.pingTimer = null;
      if (inbox.unansweredPings === 0) return;
      inbox.unansweredPings = 0;
      this.#invalidate(inbox);
    }, PING_TIMEOUT_MS).unref();
  }
}

/** What is tried anew by whoever calls it, and so needs no word. */
const ignoreErrors = (work: Promise<unknown>): Promise<unknown> => work.catch(() => undefined);
