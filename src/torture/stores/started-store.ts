/** A store that torture has started, and may therefore harm. */

type StoreFault = "kill" | "restart" | "pause";

export interface StartedStore {
  /** As people call it, with its version. */
  readonly name: string;
  readonly url: string;
  /** Injects a fault. The result repairs it, and settles when the store can be used again; null: it is not possible at this moment. */
  inject(fault: StoreFault): Promise<(() => Promise<void>) | null>;
  /** Ends it, and removes what it has stored. */
  close(): Promise<void>;
}
