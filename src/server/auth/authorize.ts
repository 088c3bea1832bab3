/** What the rules of an account allow. session/authorized-calls.ts applies them to claims. */

import { RequestError } from "../request-error.ts";
import type { Permission, Principal } from "./access-control.ts";

const REFUSALS: Readonly<Record<Permission, string>> = {
  acquire: "this credential may not acquire every key of this claim",
  inspect: "this credential may not inspect these keys",
  force: "this credential may not revoke locks of others on every one of these keys",
  admin: "this credential may not administer the server",
};

/** @throws RequestError FORBIDDEN unless the principal has the permission for all of the keys */
export function authorize(principal: Principal, permission: Permission, keys: readonly string[]): void {
  if (!keys.every((key) => principal.can(permission, key))) throw new RequestError("FORBIDDEN", REFUSALS[permission]);
}

/** The keys that the principal may see in lists and events. "" stands for all of them. */
export function visibleKeys(principal: Principal): (key: string) => boolean {
  return (key) => principal.can("inspect", key);
}
