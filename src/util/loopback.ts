/** Recognizes loopback hosts. */

/** Not isIPv4() of node:net: entries that open no socket would load that. */
const LOOPBACK_IPV4 = /^127(?:\.(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}$/;

/** Is this host name or address always this machine, without a name server? Brackets are allowed. */
export function isLoopback(host: string): boolean {
  const hostname = host.toLowerCase().replace(/^\[|\]$/g, "");
  if (hostname === "localhost" || hostname === "::1") return true;
  const ipv4 = hostname.startsWith("::ffff:") ? hostname.slice("::ffff:".length) : hostname;
  return LOOPBACK_IPV4.test(ipv4);
}
