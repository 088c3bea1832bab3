/** Who may come in: how many connections, from where, and how those are answered who show no valid credential. */

import { isIPv6 } from "node:net";
import { ProtocolError } from "../protocol/hello.ts";
import type { ServerLimits } from "./limits.ts";

/** Where a connection comes from. */
export interface Origin {
  /** By a Unix socket of this machine. */
  readonly local: boolean;
  /** The peer's network address; "" for a Unix socket. */
  readonly address: string;
}

/** Why there is no room for a connection. */
export interface Fullness<S> {
  readonly error: ProtocolError;
  /** Who has waited for longest of those that may be given up for it; null: nobody may. */
  readonly oldest: S | null;
}

/**
 * Counts connections. S: what is given up of one that has not said hello.
 *
 * Invariant: however many come from one address and say nothing, they cost those of other addresses nothing, and a
 * newcomer always has room for its hello. Whoever is given up is the oldest of the address that has most of them.
 */
export class Door<S> {
  readonly #limits: ServerLimits;
  readonly #byNeighbourhood = new Map<string, number>();
  /** Those that have not said hello, in the order in which they came, each with its number. */
  readonly #strangers = new Map<string, Map<S, number>>();
  #last = 0;
  /** Connections inside. */
  inside = 0;
  /** Of these, those that have not said hello, or wait to be refused. */
  strangers = 0;
  /** Of these, those that wait to be refused. */
  refused = 0;
  /** Connections that came in, since the start. */
  accepted = 0;
  /** Connections that found no room, or were given up for others, since the start. */
  turnedAway = 0;

  constructor(limits: ServerLimits) {
    this.#limits = limits;
  }

  /** Is there room for one more? Null, or why not. Nothing is counted. */
  full(origin: Origin): Fullness<S> | null {
    const { connections, connectionsPerAddress, strangers } = this.#limits;
    const near = nearOf(origin);
    if (!origin.local && (this.#byNeighbourhood.get(near) ?? 0) >= connectionsPerAddress) {
      return {
        error: full(`at most ${connectionsPerAddress} connections from one address`),
        oldest: this.#oldestOf(near),
      };
    }
    if (this.inside >= connections)
      return { error: full(`at most ${connections} connections`), oldest: this.#oldest(near) };
    if (this.strangers < strangers) return null;
    return { error: full(`at most ${strangers} connections that have not said hello`), oldest: this.#oldest(near) };
  }

  /** One more is inside; stranger: it has not said hello, and may be given up for another. */
  enter(origin: Origin, stranger: S | null): void {
    const near = nearOf(origin);
    this.inside++;
    this.accepted++;
    this.#byNeighbourhood.set(near, (this.#byNeighbourhood.get(near) ?? 0) + 1);
    if (stranger === null) return;
    const others = this.#strangers.get(near) ?? new Map<S, number>();
    this.#strangers.set(near, others.set(stranger, ++this.#last));
    this.strangers++;
  }

  /** It has said hello. */
  known(origin: Origin, stranger: S): void {
    const near = nearOf(origin);
    const others = this.#strangers.get(near);
    if (others?.delete(stranger) !== true) return;
    this.strangers--;
    if (others.size === 0) this.#strangers.delete(near);
  }

  leave(origin: Origin, stranger: S | null): void {
    if (stranger !== null) this.known(origin, stranger);
    this.inside--;
    const near = nearOf(origin);
    const left = (this.#byNeighbourhood.get(near) ?? 0) - 1;
    if (left > 0) this.#byNeighbourhood.set(near, left);
    else this.#byNeighbourhood.delete(near);
  }

  #oldestOf(near: string): S | null {
    return this.#strangers.get(near)?.keys().next().value ?? null;
  }

  /** The oldest of the address that has most strangers: of its own if that has as many as any other. */
  #oldest(near: string): S | null {
    let most = this.#strangers.get(near)?.size ?? 0;
    let found = this.#oldestOf(near);
    let first = 0;
    for (const others of this.#strangers.values()) {
      const [oldest, number] = others.entries().next().value as [S, number];
      if (others.size < most || (others.size === most && number >= first)) continue;
      [most, first, found] = [others.size, number, oldest];
    }
    return found;
  }
}

/** Connections of this machine are of one neighbourhood. */
function nearOf({ local, address }: Origin): string {
  return local ? "" : neighbourhood(address);
}

function full(message: string): ProtocolError {
  return new ProtocolError("LIMIT", `the server takes ${message}`);
}

/** What one customer of a provider has: an IPv4 address, or the 2^64 addresses of one IPv6 network. */
export function neighbourhood(address: string): string {
  const inner = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address);
  if (inner !== null) return inner[1] as string;
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
