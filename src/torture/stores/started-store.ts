/** A store that torture has started, and may therefore harm. */

import type { Random } from "../../testing/random.ts";
import type { ChildCommand } from "../processes/child-command.ts";

/** What a store may be struck by. Of a store of several servers it strikes one of them, or each in its turn. */
export const STORE_FAULTS = [
  "store-kill",
  "store-restart",
  "store-pause",
  "store-fail-over",
  "store-wipe",
  "power-loss",
] as const;
export type StoreFault = (typeof STORE_FAULTS)[number];

export function isStoreFault(name: string): name is StoreFault {
  return (STORE_FAULTS as readonly string[]).includes(name);
}

/** Why a store is not struck by a fault that it does not have. */
export const STORE_FAULT_REASONS: Readonly<Record<StoreFault, string>> = {
  "store-kill": "the store has no server",
  "store-restart": "the store has no server",
  "store-pause": "the store has no server",
  "store-fail-over": "this store cannot be asked for a fail-over",
  "store-wipe": "this set-up has no guard against the loss of its data",
  "power-loss": "what this store has on its disk is known only of server and sqlite, on Linux with a C compiler",
};

export interface StartedStore {
  /** As people call it, with its version. */
  readonly name: string;
  /** Of a majority those of all members, with blanks between. */
  readonly url: string;
  readonly faults: readonly StoreFault[];
  /** Its users are processes of its machine: they lose their power together with it. */
  readonly isOnUsersMachine?: true;
  /** Called before its users start: the variables of their environment. From then on no process without them may use it. */
  admitUsers?(): Readonly<Record<string, string>>;
  /**
   * Injects a fault. The result repairs it, and settles when the store can be used again; null: it is not possible at this moment.
   * @param users the processes that lose their power as well
   */
  inject(fault: StoreFault, random: Random, users: readonly number[]): Promise<(() => Promise<void>) | null>;
  /** Ends it, and removes what it has stored. */
  close(): Promise<void>;
}

export interface StoreSetup {
  /** For its data. */
  readonly directory: string;
  /** The command of this program. */
  readonly holdfast: ChildCommand;
  /** It is set up for these, if it can have them. */
  readonly faults: readonly StoreFault[];
}

/** The store did not recover from a fault: the run ends, since what follows would be judged without it. */
export class StoreFailedError extends Error {
  override readonly name = "StoreFailedError";
}
