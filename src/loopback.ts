/** Which hosts are this machine and no other. */

import { isIPv4 } from "node:net";

/** Does this host name or address lead to this machine alone, whatever a name server says? Brackets are allowed. */
export function isLoopback(host: string): boolean {
  const bare = host.toLowerCase().replace(/^\[|\]$/g, "");
  if (bare === "localhost" || bare === "::1") return true;
  const v4 = bare.startsWith("::ffff:") ? bare.slice("::ffff:".length) : bare;
  return isIPv4(v4) && v4.startsWith("127.");
}
