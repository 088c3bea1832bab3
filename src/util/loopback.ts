/** Which hosts are this machine and no other. */

import { isIPv4 } from "node:net";

/** Does this host name or address lead to this machine alone, whatever a name server says? Brackets are allowed. */
export function isLoopback(host: string): boolean {
  const hostname = host.toLowerCase().replace(/^\[|\]$/g, "");
  if (hostname === "localhost" || hostname === "::1") return true;
  const ipv4 = hostname.startsWith("::ffff:") ? hostname.slice("::ffff:".length) : hostname;
  return isIPv4(ipv4) && ipv4.startsWith("127.");
}
