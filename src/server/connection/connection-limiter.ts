/** Who may come in: how many connections, from where, and how those are answered who show no valid credential. */

import { isIPv6 } from "node:net";
import { ProtocolError } from "../../protocol/handshake.ts";
import type { ServerLimits } from "../config/limits.ts";

/** Where a connection comes from. */
export interface Peer {
  /** By a Unix socket of this machine. */
  readonly isLocal: boolean;
  /** The peer's network address; "" for a Unix socket. */
  readonly address: string;
}

/** Why there is no room for a connection. */
export interface CapacityProblem<S> {
  readonly error: ProtocolError;
  /** Who has waited for longest of those that may be given up for it; null: nobody may. */
  readonly evictable: S | null;
}

/**
 * Counts connections. S: what is given up of one that has not said hello.
 *
 * Invariant: however many come from one address and say nothing, they cost those of other addresses nothing, and a
 * newcomer always has room for its hello. Whoever is given up is the oldest of the address that has most of them.
 */
export class ConnectionLimiter<S> {
  readonly #limits: ServerLimits;
  readonly #countByNetwork = new Map<string, number>();
  /** Those that have not said hello, in the order in which they came, each with its number. */
  readonly #unauthenticatedByNetwork = new Map<string, Map<S, number>>();
  #lastNumber = 0;
  /** Connections inside. */
  open = 0;
  /** Of these, those that have not said hello, or wait to be refused. */
  unauthenticated = 0;
  /** Of these, those that wait to be refused. */
  pendingRefusals = 0;
  /** Connections that came in, since the start. */
  accepted = 0;
  /** Connections that found no room, or were given up for others, since the start. */
  rejected = 0;

  constructor(limits: ServerLimits) {
    this.#limits = limits;
  }

  /** Is there room for one more? Null, or why not. Nothing is counted. */
  check(peer: Peer): CapacityProblem<S> | null {
    const { connections, connectionsPerAddress, unauthenticatedConnections } = this.#limits;
    const network = networkOf(peer);
    if (!peer.isLocal && (this.#countByNetwork.get(network) ?? 0) >= connectionsPerAddress) {
      return {
        error: limitError(`at most ${connectionsPerAddress} connections from one address`),
        evictable: this.#oldestInNetwork(network),
      };
    }
    if (this.open >= connections)
      return { error: limitError(`at most ${connections} connections`), evictable: this.#findEvictable(network) };
    if (this.unauthenticated < unauthenticatedConnections) return null;
    return {
      error: limitError(`at most ${unauthenticatedConnections} connections that have not said hello`),
      evictable: this.#findEvictable(network),
    };
  }

  /** One more is inside; stranger: it has not said hello, and may be given up for another. */
  add(peer: Peer, connection: S | null): void {
    const network = networkOf(peer);
    this.open++;
    this.accepted++;
    this.#countByNetwork.set(network, (this.#countByNetwork.get(network) ?? 0) + 1);
    if (connection === null) return;
    const unauthenticated = this.#unauthenticatedByNetwork.get(network) ?? new Map<S, number>();
    this.#unauthenticatedByNetwork.set(network, unauthenticated.set(connection, ++this.#lastNumber));
    this.unauthenticated++;
  }

  /** It has said hello. */
  markAuthenticated(peer: Peer, connection: S): void {
    const network = networkOf(peer);
    const unauthenticated = this.#unauthenticatedByNetwork.get(network);
    if (unauthenticated?.delete(connection) !== true) return;
    this.unauthenticated--;
    if (unauthenticated.size === 0) this.#unauthenticatedByNetwork.delete(network);
  }

  remove(peer: Peer, connection: S | null): void {
    if (connection !== null) this.markAuthenticated(peer, connection);
    this.open--;
    const network = networkOf(peer);
    const remaining = (this.#countByNetwork.get(network) ?? 0) - 1;
    if (remaining > 0) this.#countByNetwork.set(network, remaining);
    else this.#countByNetwork.delete(network);
  }

  #oldestInNetwork(network: string): S | null {
    return this.#unauthenticatedByNetwork.get(network)?.keys().next().value ?? null;
  }

  /** The oldest of the address that has most strangers: of its own if that has as many as any other. */
  #findEvictable(network: string): S | null {
    let maxCount = this.#unauthenticatedByNetwork.get(network)?.size ?? 0;
    let evictable = this.#oldestInNetwork(network);
    let firstNumber = 0;
    for (const unauthenticated of this.#unauthenticatedByNetwork.values()) {
      const [oldest, number] = unauthenticated.entries().next().value as [S, number];
      if (unauthenticated.size < maxCount || (unauthenticated.size === maxCount && number >= firstNumber)) continue;
      [maxCount, firstNumber, evictable] = [unauthenticated.size, number, oldest];
    }
    return evictable;
  }
}

/** Connections of this machine are of one neighbourhood. */
function networkOf({ isLocal, address }: Peer): string {
  return isLocal ? "" : clientNetwork(address);
}

function limitError(message: string): ProtocolError {
  return new ProtocolError("LIMIT", `the server takes ${message}`);
}

/** What one customer of a provider has: an IPv4 address, or the 2^64 addresses of one IPv6 network. */
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
