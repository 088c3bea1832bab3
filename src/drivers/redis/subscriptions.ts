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

import { backoffMs } from "../../util/backoff.ts";
import type { Clock, Timer } from "../../util/clock.ts";
import { sleep, withTimeout } from "../../util/timeout.ts";
import { ATTEMPT_TIMEOUT_MS, MAX_BACKOFF_MS, PROBE_AFTER_MS, PushProbe, SILENCE_PROBE } from "../push-probe.ts";
import type { ClientAdapter, Subscriber } from "./clients/types.ts";
import { isUnavailableCommand, sanitizeError } from "./errors.ts";
import type { SendCommand } from "./script-codec.ts";
import { buildPublishCommand } from "./script-codec.ts";

/** Milliseconds in which inboxes that are verified again share one call of onMissed. */
const MISSED_DELAY_MS = 10;
/**
 * A Cluster publishes it before every grant, to count subscribers; elsewhere replicas receive no grant
 * (lua/lib/push.lua).
 */
const PING = "";
/** Milliseconds after which a ping without a grant shows that the subscriber received it, but was not counted. */
const PING_TIMEOUT_MS = 20;

/** The connection for commands. */
export interface CommandChannel {
  /** Counts the breaks of the connection. */
  readonly epoch: number;
  readonly send: SendCommand;
  /** The inbox channel of a bucket. */
  inboxChannel(routingKey: string): string;
}

export interface PushEvents {
  /** A message arrived in an inbox. `isAnswer`: it counts as an answer, not only as a recheck push. */
  onPush(message: string, isAnswer: boolean): void;
  /** The connection for commands or one for pushes broke, in a Cluster that of any node. */
  onDisconnected(): void;
  /** Pushes may have been lost. */
  onMissed(): void;
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
  /** Fires if a ping stays unanswered. */
  readonly pingTimer: Timer;
  readonly probe: PushProbe;
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
  readonly #adapter: ClientAdapter;
  readonly #commands: CommandChannel;
  readonly #clock: Clock;
  readonly #events: PushEvents;
  /** By channel. */
  readonly #inboxes = new Map<string, Inbox>();
  /** By node name. */
  readonly #subscribers = new Map<string, SubscriberState>();
  readonly #missedTimer: Timer;
  #isMissedDue = false;
  #isClosed = false;

  constructor(adapter: ClientAdapter, commands: CommandChannel, clock: Clock, events: PushEvents) {
    this.#adapter = adapter;
    this.#commands = commands;
    this.#clock = clock;
    this.#events = events;
    this.#missedTimer = clock.timer(() => {
      this.#isMissedDue = false;
      events.onMissed();
    });
  }

  /** Null if the inbox of this bucket was ever verified: it recovers by itself. Else settles when it is verified. */
  ensureSubscribed(routingKey: string): Promise<void> | null {
    const channel = this.#commands.inboxChannel(routingKey);
    const inbox = this.#inboxes.get(channel) ?? this.#addInbox(routingKey, channel);
    if (inbox.wasVerified) return null;
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
    const inbox = this.#inboxes.get(this.#commands.inboxChannel(routingKey));
    if (inbox?.wasVerified !== true || inbox.isVerifying) return;
    if (inbox.node !== this.#adapter.resolveMaster(routingKey)) this.#invalidate(inbox);
    else if (isWaiting) void this.#probeIfSilent(inbox, inbox.node ?? "");
  }

  /** Called when the command connection is back: every inbox may be on the wrong server. */
  invalidateAll(): void {
    for (const inbox of this.#inboxes.values()) this.#invalidate(inbox);
  }

  close(): void {
    this.#isClosed = true;
    this.#missedTimer.stop();
    for (const { waiters, pingTimer } of this.#inboxes.values()) {
      pingTimer.stop();
      for (const { reject } of waiters.splice(0)) reject(new Error("redis: the driver was closed"));
    }
    this.#inboxes.clear();
    for (const { subscriber } of this.#subscribers.values())
      void ignoreErrors(subscriber.then((opened) => opened.disconnect()));
    this.#subscribers.clear();
  }

  #addInbox(routingKey: string, channel: string): Inbox {
    const inbox: Inbox = {
      routingKey,
      channel,
      node: null,
      verifiedInEpoch: -1,
      invalidationCount: 0,
      isVerifying: false,
      wasVerified: false,
      unansweredPings: 0,
      pingTimer: this.#clock.timer(() => {
        inbox.unansweredPings = 0;
        this.#invalidate(inbox);
      }),
      probe: new PushProbe(),
      waiters: [],
    };
    this.#inboxes.set(channel, inbox);
    return inbox;
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
    for (let failures = 0; !this.#isClosed; ) {
      const { invalidationCount } = inbox;
      const { epoch } = this.#commands;
      const isVerified = await this.#verify(inbox);
      if (isVerified && invalidationCount === inbox.invalidationCount && epoch === this.#commands.epoch) {
        this.#markVerified(inbox, epoch);
        return;
      }
      if (isVerified) continue;
      failures++;
      await sleep(this.#clock, backoffMs(failures + 1, Math.random(), MAX_BACKOFF_MS));
    }
  }

  #markVerified(inbox: Inbox, epoch: number): void {
    const wasVerified = inbox.wasVerified;
    inbox.isVerifying = false;
    inbox.wasVerified = true;
    inbox.verifiedInEpoch = epoch;
    for (const { resolve } of inbox.waiters.splice(0)) resolve();
    if (!wasVerified || this.#isMissedDue) return;
    this.#isMissedDue = true;
    this.#missedTimer.set(this.#clock.now() + MISSED_DELAY_MS);
  }

  async #verify(inbox: Inbox): Promise<boolean> {
    if (!this.#adapter.isReady) return false;
    const attempt: Promise<boolean | null> = this.#subscribeAndProbe(inbox);
    const isVerified = await withTimeout(this.#clock, ATTEMPT_TIMEOUT_MS, attempt, () => null);
    const node = inbox.node ?? "";
    // a subscriber that delivered before and now times out will not recover
    if (isVerified === null && this.#subscribers.get(node)?.lastMessageAt != null) this.#dropSubscriber(node);
    return isVerified === true;
  }

  async #subscribeAndProbe(inbox: Inbox): Promise<boolean> {
    const { routingKey, channel } = inbox;
    const node = this.#adapter.resolveMaster(routingKey);
    try {
      if (node === null) throw new Error("redis: no known master serves this slot");
      inbox.node = node;
      const subscriber = await this.#subscriberAt(node, routingKey);
      await subscriber.subscribe(channel);
    } catch (error) {
      // only calls that wait for the first subscription fail; claims that wait already continue with rechecks
      if (isUnavailableCommand(error)) for (const { reject } of inbox.waiters.splice(0)) reject(sanitizeError(error));
      // a redirected command shows the library the new node of the slot
      await ignoreErrors(this.#publish(inbox, SILENCE_PROBE));
      return false;
    }
    return this.#isProbeReceived(inbox, node).catch(() => false); // the next attempt shows a lasting error
  }

  /** Publishes a probe the way of the commands: true if a subscriber was counted and the probe arrived here. */
  async #isProbeReceived(inbox: Inbox, node: string): Promise<boolean> {
    const { message, arrival } = inbox.probe.expect();
    if (Number(await this.#publish(inbox, message)) === 0) {
      // the subscriber is on another server than the commands: a new connection finds the right one
      if (this.#adapter.resolveMaster(inbox.routingKey) === node) this.#dropSubscriber(node);
      return false;
    }
    await arrival;
    return true;
  }

  /**
   * Probes a subscriber that has been silent for PROBE_AFTER_MS, and drops it if the probe does not arrive. The
   * rechecks of waiting claims call this.
   */
  async #probeIfSilent(inbox: Inbox, node: string): Promise<void> {
    const state = this.#subscribers.get(node);
    const now = this.#clock.now();
    if (state?.lastMessageAt == null || now - state.lastMessageAt < PROBE_AFTER_MS) return;
    const isProbePending = state.lastProbeAt > state.lastMessageAt;
    if (isProbePending && now - state.lastProbeAt >= ATTEMPT_TIMEOUT_MS) this.#dropSubscriber(node);
    if (isProbePending) return;
    state.lastProbeAt = now;
    try {
      if (Number(await this.#publish(inbox, SILENCE_PROBE)) === 0) this.#invalidate(inbox);
    } catch {
      state.lastProbeAt = 0; // the command connection failed, which says nothing about the subscriber
    }
  }

  #publish({ channel, routingKey }: Inbox, message: string): Promise<unknown> {
    const command = buildPublishCommand(routingKey, channel, message, this.#adapter.isCluster);
    return this.#commands.send(command, routingKey);
  }

  #subscriberAt(node: string, routingKey: string): Promise<Subscriber> {
    const existing = this.#subscribers.get(node);
    if (existing !== undefined) return existing.subscriber;
    const subscriber = Promise.resolve(
      this.#adapter.openSubscriber(routingKey, {
        onMessage: (channel, message) => {
          state.lastMessageAt = this.#clock.now();
          this.#onMessage(channel, message);
        },
        onDisconnected: () => {
          if (this.#subscribers.get(node) !== state) return;
          this.#dropSubscriber(node);
          this.#events.onDisconnected();
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
    if (inbox.probe.onMessage(message)) return;
    if (inbox.unansweredPings > 0 && --inbox.unansweredPings === 0) inbox.pingTimer.set(null);
    this.#events.onPush(message, inbox.verifiedInEpoch === this.#commands.epoch);
  }

  /**
   * A fail-over may leave a subscription on a replica. There it receives the pings of its master, but the master does
   * not count it.
   */
  #onPing(inbox: Inbox): void {
    if (inbox.unansweredPings++ === 0) inbox.pingTimer.set(this.#clock.now() + PING_TIMEOUT_MS);
  }
}

/** For work whose caller retries anyway. */
const ignoreErrors = (work: Promise<unknown>): Promise<unknown> => work.catch(() => undefined);
