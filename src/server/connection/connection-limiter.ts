/** Limits connections: how many in all, how many from one address, and how many without a completed handshake. */

import type { Principal } from "../../auth/access-control.ts";
import { ProtocolError } from "../../protocol/handshake.ts";
import { clientNetwork } from "../../util/client-network.ts";
import type { ServerLimits } from "../limits.ts";

/**
 * The most connections without a completed handshake. One is made in milliseconds, so that this is room for hundreds of
 * new clients at a time; each may hold as much memory as an admitted one.
 */
const MAX_UNAUTHENTICATED = 256;

/** The remote end of a connection. */
export interface Peer {
  /** Connected by a Unix socket of this machine. */
  readonly isLocal: boolean;
  /** The peer's network address; "" for a Unix socket. */
  readonly address: string;
  /** A client of this process: its account. */
  readonly principal?: Principal;
}

/** The limit that refuses a connection. */
export interface CapacityProblem<S> {
  readonly error: ProtocolError;
  /** The unauthenticated connection to close in favour of the new one; null if there is none. */
  readonly evictable: S | null;
}

/**
 * Counts connections. S: the handle by which an unauthenticated connection is evicted.
 *
 * Invariant: silent connections from one address, however many, cost other addresses nothing, and a new connection
 * always has room for its handshake. The connection that is evicted is the oldest one of the address with the most of
 * them.
 */
export class ConnectionLimiter<S> {
  readonly #limits: ServerLimits;
  readonly #countByNetwork = new Map<string, number>();
  /** Unauthenticated connections in the order of arrival, each with its number. */
  readonly #unauthenticatedByNetwork = new Map<string, Map<S, number>>();
  #lastNumber = 0;
  /** Open connections. */
  open = 0;
  /** Of these, the ones without a completed handshake. */
  unauthenticated = 0;
  /** Connections accepted since the start. */
  accepted = 0;
  /** Connections refused or evicted since the start because of a limit. */
  rejected = 0;

  constructor(limits: ServerLimits) {
    this.#limits = limits;
  }

  /** Null if one more connection fits, else the limit that it exceeds. Changes no counter. */
  check(peer: Peer): CapacityProblem<S> | null {
    const { connections, connectionsPerAddress } = this.#limits;
    const network = peerNetwork(peer);
    if (!peer.isLocal && (this.#countByNetwork.get(network) ?? 0) >= connectionsPerAddress) {
      return {
        error: limitError(`at most ${connectionsPerAddress} connections from one address`),
        evictable: this.#oldestInNetwork(network),
      };
    }
    if (this.open >= connections)
      return { error: limitError(`at most ${connections} connections`), evictable: this.#findEvictable(network) };
    if (this.unauthenticated < MAX_UNAUTHENTICATED) return null;
    return {
      error: limitError(`at most ${MAX_UNAUTHENTICATED} connections that have not said hello`),
      evictable: this.#findEvictable(network),
    };
  }

  /** Counts a new connection. connection: the handle of one that has not completed its handshake and may be evicted. */
  add(peer: Peer, connection: S | null): void {
    const network = peerNetwork(peer);
    this.open++;
    this.accepted++;
    this.#countByNetwork.set(network, (this.#countByNetwork.get(network) ?? 0) + 1);
    if (connection === null) return;
    const unauthenticated = this.#unauthenticatedByNetwork.get(network) ?? new Map<S, number>();
    this.#unauthenticatedByNetwork.set(network, unauthenticated.set(connection, ++this.#lastNumber));
    this.unauthenticated++;
  }

  /** The connection has completed its handshake. */
  markAuthenticated(peer: Peer, connection: S): void {
    const network = peerNetwork(peer);
    const unauthenticated = this.#unauthenticatedByNetwork.get(network);
    if (unauthenticated?.delete(connection) !== true) return;
    this.unauthenticated--;
    if (unauthenticated.size === 0) this.#unauthenticatedByNetwork.delete(network);
  }

  remove(peer: Peer, connection: S | null): void {
    if (connection !== null) this.markAuthenticated(peer, connection);
    this.open--;
    const network = peerNetwork(peer);
    const remaining = (this.#countByNetwork.get(network) ?? 0) - 1;
    if (remaining > 0) this.#countByNetwork.set(network, remaining);
    else this.#countByNetwork.delete(network);
  }

  #oldestInNetwork(network: string): S | null {
    return this.#unauthenticatedByNetwork.get(network)?.keys().next().value ?? null;
  }

  /**
   * The oldest connection of the address with the most unauthenticated ones; on a tie with the newcomer's own address,
   * of that one.
   */
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

/** All connections of this machine count as one network. */
function peerNetwork({ isLocal, address }: Peer): string {
  return isLocal ? "" : clientNetwork(address);
}

function limitError(message: string): ProtocolError {
  return new ProtocolError("LIMIT", `the server accepts ${message}`);
}
