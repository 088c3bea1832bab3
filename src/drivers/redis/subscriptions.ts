/**
 * Receives pushes through inbox channels: one for the store, or in a Cluster one for each bucket in use, on the master
 * of the bucket. Each inbox follows its bucket's commands through broken connections, fail-over and moving slots.
 * Timers only space the attempts to subscribe and the probes; claims are unknown here.
 *
 * Invariants
 * - An inbox is verified only if a probe published the way of the commands was counted as received by a subscriber and
 *   arrived here. So the subscription is on that master, and all earlier messages have passed.
 * - A push counts as an answer only if its inbox was verified in the current epoch; otherwise it is a recheck push.
 * - A dead subscription is always detected: a half-open connection raises no event, so silence is probed while claims
 *   wait.
 */

import { setTimeout as pause } from "node:timers/promises";
import { backoffMs } from "../../util/backoff.ts";
import type { ClientAdapter, Subscriber } from "./clients/types.ts";
import { isPermissionError, sanitizeError } from "./errors.ts";
import { buildPublishCommand } from "./script-codec.ts";

/** Timeout in milliseconds of an attempt to verify an inbox. */
const ATTEMPT_TIMEOUT_MS = 2_000;
/** Milliseconds without a message after which a subscriber is probed, if a claim waits. */
const PROBE_AFTER_MS = 5_000;
/** Longest pause between attempts, in milliseconds. */
const MAX_BACKOFF_MS = 1_000;
/** Milliseconds in which inboxes that are verified again share one call of onMissed. */
const MISSED_DELAY_MS = 10;
/** The driver publishes messages with this prefix itself, to verify its subscriptions. */
const PROBE_PREFIX = "?";
/**
 * A Cluster publishes it before every grant, to count subscribers; elsewhere replicas receive no grant
 * (lua/lib/admission.lua).
 */
const PING = "";
/** Milliseconds after which a ping without a grant shows that the subscriber received it, but was not counted. */
const PING_TIMEOUT_MS = 20;

export interface SubscriptionsOptions {
  readonly adapter: ClientAdapter;
  /** The inbox channel of a bucket. */
  readonly toChannel: (routingKey: string) => string;
  readonly send: (args: string[], routingKey: string) => Promise<unknown>;
  /** Counts the breaks of the command connection. */
  readonly getEpoch: () => number;
  /** A message arrived. `isAnswer`: it counts as an answer, not only as a recheck push. */
  readonly onPush: (message: string, isAnswer: boolean) => void;
  /** Pushes may have been lost. */
  readonly onMissed: () => void;
}

interface Inbox {
  readonly routingKey: string;
  readonly channel: string;
  /** The node of the last attempt to subscribe. */
  node: string | null;
  /** The epoch in which it was verified; -1: it is not. */
  verifiedInEpoch: number;
  /** Counts the events that may have ended the subscription. */
  invalidationCount: number;
  isVerifying: boolean;
  wasVerified: boolean;
  /** Pings that no message has followed yet. */
  unansweredPings: number;
  pingTimer: NodeJS.Timeout | null;
  onProbe: (probe: string) => void;
  waiters: { resolve(): void; reject(error: unknown): void }[];
}

interface SubscriberState {
  readonly subscriber: Promise<Subscriber>;
  /** When it last received a message; null: never. */
  lastMessageAt: number | null;
  /** When it was last probed. */
  lastProbeAt: number;
}

export class Subscriptions {
  readonly #options: SubscriptionsOptions;
  /** By channel. */
  readonly #inboxes = new Map<string, Inbox>();
  /** By node name. */
  readonly #subscribers = new Map<string, SubscriberState>();
  readonly #closeController = new AbortController();
  #missedTimer: NodeJS.Timeout | null = null;
  #probeCount = 0;

  constructor(options: SubscriptionsOptions) {
    this.#options = options;
  }

  /** Null if the inbox of this bucket was ever verified: it recovers by itself. Else settles when it is verified. */
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

  /**
   * Called after each command: the inbox follows when the bucket has moved to another node. `isWaiting`: a claim waits
   * for a push there.
   */
  onCommandRouted(routingKey: string, isWaiting: boolean): void {
    const inbox = this.#inboxes.get(this.#options.toChannel(routingKey));
    if (inbox?.wasVerified !== true || inbox.isVerifying) return;
    if (inbox.node !== this.#options.adapter.resolveMaster(routingKey)) this.#invalidate(inbox);
    else if (isWaiting) void this.#probeIfSilent(inbox, inbox.node ?? "");
  }

  /** Called when the command connection is back: every inbox may be on the wrong server. */
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

  /** Tries until the inbox is verified. */
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
      const delayMs = backoffMs(failures + 1, Math.random(), MAX_BACKOFF_MS);
      await ignoreErrors(pause(delayMs, null, { ref: false, signal: this.#closeController.signal }));
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
    // a subscriber that delivered before and now times out will not recover
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
      // only calls that wait for the first subscription fail; claims that wait already continue with rechecks
      if (isPermissionError(error)) for (const { reject } of inbox.waiters.splice(0)) reject(sanitizeError(error));
      // a redirected command shows the library the new node of the slot
      await ignoreErrors(this.#publish(inbox, PROBE_PREFIX));
      return false;
    }
    return this.#isProbeReceived(inbox, node).catch(() => false); // the next attempt shows a lasting error
  }

  /** Publishes a probe the way of the commands: true if a subscriber was counted and the probe arrived here. */
  async #isProbeReceived(inbox: Inbox, node: string): Promise<boolean> {
    const probe = `${PROBE_PREFIX}${++this.#probeCount}`;
    const received = new Promise<void>((resolve) => {
      inbox.onProbe = (message) => {
        if (message === probe) resolve();
      };
    });
    if (Number(await this.#publish(inbox, probe)) === 0) {
      // the subscriber is on another server than the commands: a new connection finds the right one
      if (this.#options.adapter.resolveMaster(inbox.routingKey) === node) this.#dropSubscriber(node);
      return false;
    }
    await received;
    return true;
  }

  /**
   * Probes a subscriber that has been silent for PROBE_AFTER_MS, and drops it if the probe does not arrive. The
   * rechecks of waiting claims call this.
   */
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
      state.lastProbeAt = 0; // the command connection failed, which says nothing about the subscriber
    }
  }

  #publish({ channel, routingKey }: Inbox, message: string): Promise<unknown> {
    const { adapter, send } = this.#options;
    return send(buildPublishCommand(routingKey, channel, message, adapter.isCluster), routingKey);
  }

  #subscriberAt(node: string, routingKey: string): Promise<Subscriber> {
    const existing = this.#subscribers.get(node);
    if (existing !== undefined) return existing.subscriber;
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

  /**
   * A fail-over may leave a subscription on a replica. There it receives the pings of its master, but the master does
   * not count it.
   */
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

/** For work whose caller retries anyway. */
const ignoreErrors = (work: Promise<unknown>): Promise<unknown> => work.catch(() => undefined);
