/** The parts of the local backend. */

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
  /** What the start knows about earlier claims. */
  readonly recoveryPlan: RecoveryPlan;
  /** The saved state and its generation; null: nothing is saved. */
  readonly identity: StateEpoch | null;
  readonly log: Logger;
  readonly limits?: ServerLimits;
  /** The limits that reclaimed claims may have been granted under. Default: `limits`. */
  readonly formerLimits?: ClaimLimits;
  /** Receives all events. Default: none. */
  readonly eventLog?: EventLog;
  /**
   * Called before a session gets its first answer about a claim, because it may hold a lock from then on.
   * @throws RequestError
   */
  readonly persistSession: (session: Session) => void;
}
