/**
 * The claims of this process for one lock of the server. The server lets a session take a lock that it has once more,
 * so claims that share a connection have to exclude each other here.
 */

import type { Answer, Claim } from "../../../spi/driver.ts";
import type { AdvisoryMode } from "./dialect.ts";
import type { Session } from "./session.ts";

/** One claim from its first call until its end. */
export interface Entry {
  readonly claim: Claim;
  readonly mode: AdvisoryMode;
  readonly queue: LockQueue;
  readonly createdAt: number;
  /** The `claim` call in progress. */
  attempt: Promise<Answer> | null;
  /** What it was granted; null: nothing yet. */
  hold: Hold | null;
}

/** A lock that a claim has. */
interface Hold {
  /** The one that has the lock. */
  readonly session: Session;
  readonly grantedAt: number;
}

/** The statement with which the first waiting claim of a queue waits at the server. */
export interface Wait {
  readonly entry: Entry;
  /** Null while a connection is opened. */
  session: Session | null;
  isCancelled: boolean;
  /** Settles when the server's answer has been dealt with. Never rejects. */
  done: Promise<void>;
}

export class LockQueue {
  readonly name: string;
  readonly holders: Entry[] = [];
  /** In order of arrival. The first one waits at the server, if there is a connection for it. */
  readonly waiting: Entry[] = [];
  wait: Wait | null = null;
  #lastWork: Promise<unknown> = Promise.resolve();
  #workCount = 0;

  constructor(name: string) {
    this.name = name;
  }

  get isEmpty(): boolean {
    return this.holders.length + this.waiting.length + this.#workCount === 0 && this.wait === null;
  }

  /** Does no holder of this process exclude the claim? */
  admits({ mode }: Entry): boolean {
    for (const holder of this.holders) if (!mode.isShared || !holder.mode.isShared) return false;
    return true;
  }

  /** Runs `work` when all earlier work has settled, so that two attempts never share a session's lock. */
  serialize<T>(work: () => Promise<T>): Promise<T> {
    // at once if nothing is in progress: most locks have one claim at a time
    const result = this.#workCount++ === 0 ? work() : this.#lastWork.then(work);
    // before the caller goes on, which may ask whether the queue is empty
    this.#lastWork = result.then(this.#endWork, this.#endWork);
    return result;
  }

  readonly #endWork = (): void => {
    this.#workCount--;
  };

  remove(entry: Entry): void {
    removeFrom(this.holders, entry);
    removeFrom(this.waiting, entry);
  }
}

function removeFrom(entries: Entry[], entry: Entry): void {
  const index = entries.indexOf(entry);
  if (index !== -1) entries.splice(index, 1);
}
