/** What the keeper is made of. */

import type { Clock } from "../clock.ts";
import type { StateName } from "../protocol/hello.ts";
import type { Ledger } from "./ledger.ts";
import type { ClaimBounds, ServerLimits } from "./limits.ts";
import type { Log } from "./logging.ts";
import type { RecoveryPlan } from "./reclaiming.ts";
import type { Record } from "./record.ts";
import type { Session } from "./session.ts";

export interface KeeperOptions {
  readonly clock: Clock;
  readonly sessionMs: number;
  /** null: nothing is saved. */
  readonly ledger: Ledger | null;
  /** What there is to reclaim. */
  readonly recovery: RecoveryPlan;
  /** Which state this is, and which start of it; null: nothing is saved. */
  readonly identity: StateName | null;
  readonly log: Log;
  readonly limits?: ServerLimits;
  /** What those who come back after a restart may have had. Default: what the limits allow. */
  readonly formerRoom?: ClaimBounds;
  /** Told of all that happens. Default: nobody is. */
  readonly record?: Record;
  /** Called before a session first gets an answer about a claim of its own: it may hold from now on. @throws Refusal */
  readonly note: (session: Session) => void;
}
