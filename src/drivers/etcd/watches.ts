/**
 * The watches of claims: a waiting claim watches what must go first; a held claim its own entry, or its whole queue if it asks to be
 * recalled. A claim is covered by its watch if its queue was read at the revision `since` of the watch, or later; else it is asked about again.
 */

import { findBlocker } from "../../lock-table/admission.ts";
import type { Clock, Timer } from "../../util/clock.ts";
import type { EtcdClient } from "./client/client.ts";
import { decodeText, encodeText, rangeOf } from "./client/messages.ts";
import type { WatchEvent, WatchTarget } from "./client/watch-stream.ts";
import type { Entry } from "./entry.ts";
import type { QueuedEntry } from "./names.ts";
import { decodeEntry } from "./names.ts";

/** A lock that is released by then costs no watch. What changes meanwhile is reported then. */
const OWN_WATCH_DELAY_MS = 250;

/** A part of a queue that was read, from its front: the last entry is the newest. */
export interface QueueView {
  readonly queue: readonly QueuedEntry[];
  /** No entry is before the first one. */
  readonly isComplete: boolean;
  /** A claim waits behind it, or behind those that share the key. */
  readonly isWanted: boolean;
  readonly revision: bigint;
}

interface EntryWatchesOptions {
  readonly client: EtcdClient;
  readonly clock: Clock;
  /** The claim is admitted: the only entry before its own is gone. */
  readonly onFirst: (entry: Entry) => void;
  /** The answer of a claim may have changed: the entry that it waits for has, or its own, or another claim waits for it. */
  readonly onChanged: (entry: Entry) => void;
}

export class EntryWatches {
  readonly #options: EntryWatchesOptions;
  /** Held claims without a watch, in the order of their grants. */
  #unwatched: Entry[] = [];
  readonly #timer: Timer;

  constructor(options: EntryWatchesOptions) {
    this.#options = options;
    this.#timer = options.clock.timer(() => this.#watchUnwatched());
  }

  /** Watches what must go before the claim is admitted, as of this view of its queue. */
  watchBlocker(entry: Entry, { queue, isComplete }: QueueView, ownIndex: number): void {
    const { onFirst, onChanged } = this.#options;
    const blocker = findBlocker(queue, ownIndex);
    if (blocker === "queue")
      return this.#watch(entry, entry.queueName, { ...rangeOf(entry.queueName), without: "NOPUT" }, () =>
        onChanged(entry),
      );
    const { name } = queue[blocker] as QueuedEntry;
    const isOnlyOne = isComplete && entry.isExclusive && ownIndex === 1;
    if (isOnlyOne) this.#watchOwnEntry(entry);
    this.#watch(entry, name, { key: encodeText(name), without: "NOPUT" }, () => {
      const ownSince = entry.ownWatch?.since ?? null;
      if (isOnlyOne && ownSince !== null && ownSince <= entry.seenAt) onFirst(entry);
      else onChanged(entry);
    });
  }

  /** Watches the entry of a held claim: soon, if it is still held then. */
  watchOwn(entry: Entry): void {
    if (entry.watched === entry.name) return;
    entry.setWatch(null, entry.name);
    this.#unwatched.push(entry);
    if (this.#unwatched.length === 1) this.#timer.set(this.#options.clock.now() + OWN_WATCH_DELAY_MS);
  }

  close(): void {
    this.#timer.stop();
  }

  #watchOwnEntry(entry: Entry): void {
    const onEvent = (event: WatchEvent): void => this.#onOwnEvent(entry, event);
    entry.ownWatch ??= this.#options.client.watch(
      { key: encodeText(entry.name) },
      { onEvent, onCreated: () => undefined },
    );
  }

  #watchUnwatched(): void {
    const due = this.#unwatched;
    this.#unwatched = [];
    for (const entry of due) {
      if (entry.status !== "present" || entry.watched !== entry.name || entry.watch !== null) continue;
      entry.watched = "";
      const target = entry.isRecallable ? rangeOf(entry.queueName) : { key: encodeText(entry.name) };
      this.#watch(entry, entry.name, target, (event) => {
        if (decodeText(event.kv.key) === entry.name) this.#onOwnEvent(entry, event);
        else this.#onOther(entry, event);
      });
    }
  }

  /** @param watched the name of what is watched: for the same one the watch remains */
  #watch(entry: Entry, watched: string, target: WatchTarget, onEvent: (event: WatchEvent) => void): void {
    const { client, onChanged } = this.#options;
    const recheckIfBehind = (): void => {
      if (entry.watch !== null && !entry.isCovered) onChanged(entry);
    };
    if (entry.watched !== watched) {
      entry.setWatch(null);
      entry.setWatch(client.watch(target, { onEvent, onCreated: recheckIfBehind }), watched);
    }
    // another claim of this client watches the same, and has heard of a later change
    if (entry.watch?.since != null) recheckIfBehind();
  }

  /** The entry of another claim in its queue has changed. */
  #onOther(entry: Entry, { isDelete }: WatchEvent): void {
    // perhaps the only one that waited: the next one is news again
    if (isDelete) entry.isWanted = false;
    if (!entry.isWanted) this.#options.onChanged(entry);
  }

  #onOwnEvent(entry: Entry, { isDelete, kv }: WatchEvent): void {
    // the answer to a release that is repeated says whether it existed
    if (entry.status !== "present" || entry.isDeletePending) return;
    if (isDelete) entry.end(null);
    else {
      const { value, leaseId } = decodeEntry(kv);
      if (value?.isRevoked === true) entry.grant = "revoked";
      // another client has extended it: that lease is not this client's
      else if (leaseId !== entry.lease?.id) entry.setLease(null);
      else return;
    }
    this.#options.onChanged(entry);
  }
}
