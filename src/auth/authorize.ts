/** What the rules of an account allow. session/authorized-calls.ts applies them to claims. */

import { RequestError } from "../server/request-error.ts";
import type { Claim } from "../spi/driver.ts";
import type { Principal, Right } from "./access-control.ts";

const REFUSALS: Readonly<Record<Right, string>> = {
  acquire: "this credential may not acquire every key of this claim",
  inspect: "this credential may not inspect these keys",
  revoke: "this credential may not revoke locks of others on every one of these keys",
  admin: "this credential may not administer the server",
};

/** @throws RequestError FORBIDDEN unless the principal has the right for all of the keys */
export function authorize(principal: Principal, right: Right, keys: readonly string[]): void {
  if (!keys.every((key) => principal.can(right, key))) throw new RequestError("FORBIDDEN", REFUSALS[right]);
}

/** True if the principal may acquire all keys of the claim. */
export function canAcquire(principal: Principal, { locks }: Claim): boolean {
  return locks.every(({ key }) => principal.can("acquire", key));
}

/** @throws RequestError FORBIDDEN unless the principal may acquire all keys of the claim */
export function authorizeAcquire(principal: Principal, claim: Claim): void {
  if (!canAcquire(principal, claim)) throw new RequestError("FORBIDDEN", REFUSALS.acquire);
}

/** The keys that the principal may see in lists and events. "" stands for all of them. */
export function visibleKeys(principal: Principal): (key: string) => boolean {
  return (key) => principal.can("inspect", key);
}
