/** holdfast/driver: the contract for authors of drivers, and the rules that a driver would otherwise restate. */

export { countAdmitted } from "../lock-table/admission.ts";
export { acceptsFloor, nextToken } from "../lock-table/token-rule.ts";
export { publicTag } from "../util/ids.ts";
export {
  ALL_PERMITS,
  type Answer,
  type Check,
  type Claim,
  type ClaimId,
  type ClaimView,
  type Driver,
  type DriverEvents,
  type EndReason,
  type ListOptions,
  type ListQuery,
  type LockSpec,
  type Page,
  type Pause,
  type Release,
  type RevokeTarget,
  StoreRefusedError,
  type TokenRange,
  type Traits,
} from "./driver.ts";
