/**
 * The watches of claims: a waiting claim watches the entry that blocks it, a held claim its own entry, or its whole queue if it asks to be
 * recalled.
 */

import { findBlocker } from "../../lock-table/admission.ts";
import type { EndReason } from "../../spi/driver.ts";
import type { Clock, Timer } from "../../util/clock.ts";
import type { Entry } from "./entry.ts";
import { decodeText, encodeText, rangeOf } from "./messages.ts";
import type { QueuedEntry } from "./names.ts";
import { decodeEntry } from "./names.ts";
import type { Watch, WatchEvent, WatchListener, WatchStream } from "./watch-stream.ts";

/** A lock that is released by then costs no watch. What changes meanwhile is reported then. */
const OWN_WATCH_DELAY_MS = 250;

/** A part of a queue that was read, from its front: the last entry is the newest. */
export interface QueueView {
  readonly queue: readonly QueuedEntry[];
  /** No entry is before the first one. */
  readonly isComplete: boolean;
  readonly revision: bigint;
}

interface EntryWatchesOptions {
  readonly stream: WatchStream;
  readonly clock: Clock;
  /** The claim is admitted: the only entry before its own was deleted at this revision. */
  readonly onFirst: (entry: Entry, revision: bigint) => void;
  /** The answer of a claim may have changed. */
  readonly onChanged: (entry: Entry) => void;
  /** Others have come to the queue of a held claim, or have left it. */
  readonly onOthers: (entry: Entry) => void;
  readonly onEnd: (entry: Entry, reason: EndReason | null) => void;
}

/** A watch on all removals of a queue, for the claims that any of them may admit. */
interface QueueWatch {
  readonly watch: Watch;
  readonly waiters: Set<Entry>;
  /** The revision of the last removal that it has reported. */
  reportedAt: bigint;
}

interface OwnWatch {
  readonly entry: Entry;
  readonly fromRevision: bigint;
}

export class EntryWatches {
  readonly #options: EntryWatchesOptions;
  readonly #queueWatches = new Map<string, QueueWatch>();
  /** Held claims without a watch, in the order of their grants. */
  #unwatched: OwnWatch[] = [];
  readonly #timer: Timer;

  constructor(options: EntryWatchesOptions) {
    this.#options = options;
    this.#timer = options.clock.timer(() => this.#watchUnwatched());
  }

  /** Watches what must go before the claim is admitted, as of this view of its queue. */
  watchBlocker(entry: Entry, { queue, isComplete, revision }: QueueView, ownIndex: number): void {
    const blocker = findBlocker(queue, ownIndex);
    if (blocker === "queue") return this.#joinQueueWatch(entry, revision);
    const { name } = queue[blocker] as QueuedEntry;
    const isOnlyOne = isComplete && entry.needsBriefView && ownIndex === 1;
    if (entry.watched === name) return;
    entry.setWatch(null);
    entry.watched = name;
    const onEvent = ({ kv }: WatchEvent): void => {
      if (isOnlyOne) this.#options.onFirst(entry, BigInt(kv.mod_revision));
      else this.#onGone(entry);
    };
    const target = { key: encodeText(name), without: "NOPUT" } as const;
    entry.setWatch(
      this.#options.stream.watch(target, revision + 1n, { onEvent, onMissed: () => this.#onGone(entry) }),
      name,
    );
  }

  /** Watches the entry of a held claim, as it was at this revision: soon, if it is still held then. */
  watchOwn(entry: Entry, revision: bigint): void {
    if (entry.watched === entry.name) return;
    entry.setWatch(null, entry.name);
    // whoever has come since its entry was created may wait for it
    const fromRevision = (entry.isRecallable ? entry.createRevision : revision) + 1n;
    this.#unwatched.push({ entry, fromRevision });
    if (this.#unwatched.length === 1) this.#timer.set(this.#options.clock.now() + OWN_WATCH_DELAY_MS);
  }

  close(): void {
    this.#timer.stop();
  }

  #watchUnwatched(): void {
    const due = this.#unwatched;
    this.#unwatched = [];
    for (const { entry, fromRevision } of due) {
      if (entry.status !== "present" || entry.watched !== entry.name || entry.watch !== null) continue;
      const target = entry.isRecallable ? rangeOf(entry.queueName) : { key: encodeText(entry.name) };
      const listener: WatchListener = {
        onEvent: (event) => {
          if (decodeText(event.kv.key) === entry.name) this.#onOwnEvent(entry, event);
          else this.#options.onOthers(entry);
        },
        onMissed: () => this.#onGone(entry),
      };
      entry.setWatch(this.#options.stream.watch(target, fromRevision, listener), entry.name);
    }
  }

  #onOwnEvent(entry: Entry, { isDelete, kv }: WatchEvent): void {
    if (entry.status !== "present") return;
    if (isDelete) this.#options.onEnd(entry, null);
    else {
      const { value, leaseId } = decodeEntry(kv);
      if (value?.isRevoked === true) entry.grant = "revoked";
      // another client has extended it: that lease is not this client's
      else if (leaseId !== entry.lease?.id) entry.setLease(null);
      else return;
    }
    this.#options.onChanged(entry);
  }

  #onGone(entry: Entry): void {
    entry.setWatch(null);
    this.#options.onChanged(entry);
  }

  #joinQueueWatch(entry: Entry, revision: bigint): void {
    const { queueName } = entry;
    const shared = this.#queueWatches.get(queueName) ?? this.#watchQueue(queueName, revision);
    // an entry that is missing from this view, or a removal that the others have looked at before
    if (revision < shared.reportedAt) this.#options.onChanged(entry);
    if (entry.watched === queueName) return;
    entry.setWatch(null);
    shared.waiters.add(entry);
    const leave = (): void => {
      shared.waiters.delete(entry);
      if (shared.waiters.size > 0 || this.#queueWatches.get(queueName) !== shared) return;
      this.#queueWatches.delete(queueName);
      shared.watch.cancel();
    };
    const view: Watch = {
      get isActive() {
        return shared.watch.isActive;
      },
      cancel: leave,
    };
    entry.setWatch(view, queueName);
  }

  #watchQueue(queueName: string, revision: bigint): QueueWatch {
    const target = { ...rangeOf(queueName), without: "NOPUT" } as const;
    const watch = this.#options.stream.watch(target, revision + 1n, {
      onEvent: ({ kv }) => {
        shared.reportedAt = BigInt(kv.mod_revision);
        for (const waiter of shared.waiters) this.#options.onChanged(waiter);
      },
      onMissed: () => {
        this.#queueWatches.delete(queueName);
        for (const waiter of [...shared.waiters]) this.#onGone(waiter);
      },
    });
    const shared: QueueWatch = { watch, waiters: new Set(), reportedAt: 0n };
    this.#queueWatches.set(queueName, shared);
    return shared;
  }
}
