/** What the keeper is made of. */

import type { Clock } from "../clock.ts";
import type { Ledger } from "./ledger.ts";
import type { ServerLimits } from "./limits.ts";
import type { Log } from "./logging.ts";
import type { Record } from "./record.ts";
import type { Session } from "./session.ts";

export interface KeeperOptions {
  readonly clock: Clock;
  readonly sessionMs: number;
  /** null: nothing is saved. */
  readonly ledger: Ledger | null;
  /** Tokens from before this start lie below it; new ones do not. Infinity: that is not known. */
  readonly boundAtStart: number;
  /** How long to reclaim at most; 0: open at once. */
  readonly reclaimMs: number;
  /** Ids of the sessions that may hold something from before; null: there may be others. */
  readonly awaited: ReadonlySet<string> | null;
  readonly log: Log;
  readonly limits?: ServerLimits;
  /** Told of all that happens. Default: nobody is. */
  readonly record?: Record;
  /** Called before a session first gets an answer about a claim of its own: it may hold from now on. @throws Refusal */
  readonly note: (session: Session) => void;
}
