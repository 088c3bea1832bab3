/** What a torture needs of a lock library: Holdfast itself (holdfast-subject.ts), or a rival's adapter. */

import type { Operation } from "./history.ts";
import type { StartedStore } from "./stores/started-store.ts";

/** A lock that was granted. */
export interface Hold {
  /** The fencing token of each key, in decimal; null: the library has none. */
  readonly tokens: Readonly<Record<string, string>> | null;
  /**
   * Asks whether the lock is held, by this process's own knowledge: the milliseconds left, 0 if it is lost. null: the library says that
   * it is held, and not for how long.
   */
  leftMs(): number | null;
  /** Called at most once, when the library tells the loss; at once if it has told it before. */
  onLost(listener: (reason: string) => void): void;
  /** Resolves to whether it was held until now; null: the library does not say. */
  release(): Promise<boolean | null>;
}

export interface SubjectOptions {
  readonly url: string | undefined;
  /** Before every key. */
  readonly prefix: string;
  /** The length of every lease. */
  readonly ttlMs: number;
}

export interface Subject {
  /**
   * Waits at most `waitMs`; null: not granted in that time. @throws an error with the name "UnsupportedError" if it never does
   * operations of this kind; any other one if it failed, and may have been granted
   */
  acquire(operation: Omit<Operation, "op">): Promise<Hold | null>;
  close(): Promise<void>;
}

export type OpenSubject = (options: SubjectOptions) => Promise<Subject>;

/** The module of a rival's adapter. */
export interface Adapter {
  readonly openSubject: OpenSubject;
  /** Of a library with a server of its own, which takes the place of the store that torture starts. */
  readonly startStore?: (directory: string) => Promise<StartedStore>;
}
