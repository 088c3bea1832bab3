/** What the routes of a gateway share. */

import type { RejectionLog } from "../auth/failure-limiter.ts";
import type { ServerLimits } from "../server/limits.ts";
import type { Logger } from "../server/logger.ts";
import type { Clock } from "../util/clock.ts";
import type { ClaimRegister } from "./claim-register.ts";
import type { GatewayStore } from "./gateway-store.ts";
import type { Places } from "./places.ts";
import type { ReferenceSeal } from "./reference-seal.ts";

export interface GatewayService {
  readonly store: GatewayStore;
  readonly register: ClaimRegister;
  readonly places: Places;
  /** Binds references to accounts; null: there are none, or the store does. */
  readonly seal: ReferenceSeal | null;
  readonly clock: Clock;
  readonly log: Logger;
  readonly limits: ServerLimits;
  /** Identifies this run, in the ids of events. */
  readonly runId: string;
  /** Records failed authentication attempts. */
  readonly rejectionLog: RejectionLog;
  /** The program is stopping: requests that concern locks are refused. */
  readonly isDraining: boolean;
  /** Milliseconds until new locks are granted again; 0: they are. */
  recoveryRemainingMs(): number;
}
