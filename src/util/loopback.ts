/** Recognizes loopback hosts. */

import { isIPv4 } from "node:net";

/** Is this host name or address always this machine, without a name server? Brackets are allowed. */
export function isLoopback(host: string): boolean {
  const hostname = host.toLowerCase().replace(/^\[|\]$/g, "");
  if (hostname === "localhost" || hostname === "::1") return true;
  const ipv4 = hostname.startsWith("::ffff:") ? hostname.slice("::ffff:".length) : hostname;
  return isIPv4(ipv4) && ipv4.startsWith("127.");
}
