/** What the keeper is made of. */

import type { StateEpoch } from "../../protocol/handshake.ts";
import type { Clock } from "../../util/clock.ts";
import type { ClaimLimits, ServerLimits } from "../config/limits.ts";
import type { Logger } from "../config/logger.ts";
import type { EventLog } from "../events/event-log.ts";
import type { Session } from "../session/session.ts";
import type { DurableLog } from "../storage/durable-log.ts";
import type { RecoveryPlan } from "./recovery-window.ts";

export interface LocalBackendOptions {
  readonly clock: Clock;
  readonly sessionMs: number;
  /** null: nothing is saved. */
  readonly durableLog: DurableLog | null;
  /** What there is to reclaim. */
  readonly recoveryPlan: RecoveryPlan;
  /** Which state this is, and which start of it; null: nothing is saved. */
  readonly identity: StateEpoch | null;
  readonly log: Logger;
  readonly limits?: ServerLimits;
  /** What those who come back after a restart may have had. Default: what the limits allow. */
  readonly formerLimits?: ClaimLimits;
  /** Told of all that happens. Default: nobody is. */
  readonly eventLog?: EventLog;
  /** Called before a session first gets an answer about a claim of its own: it may hold from now on. @throws RequestError */
  readonly persistSession: (session: Session) => void;
}
