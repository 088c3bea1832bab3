/** Which addresses of the network count as one client. */

import { isIPv6 } from "node:net";

/** The addresses that a provider gives to one customer: an IPv4 address, or the 2^64 addresses of one IPv6 network. */
export function clientNetwork(address: string): string {
  const mappedIpv4 = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address);
  if (mappedIpv4 !== null) return mappedIpv4[1] as string;
  if (!isIPv6(address)) return address;
  const [head = "", tail] = (address.split("%")[0] as string).split("::");
  const before = head === "" ? [] : head.split(":");
  const after = tail === undefined || tail === "" ? [] : tail.split(":");
  const zeros = tail === undefined ? 0 : 8 - before.length - after.length;
  const groups = [...before, ...Array.from({ length: Math.max(zeros, 0) }, () => "0"), ...after];
  return groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(":");
}
