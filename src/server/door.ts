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

export class Door {
  readonly #limits: ServerLimits;
  readonly #byNeighbourhood = new Map<string, number>();
  /** Connections inside. */
  inside = 0;
  /** Of these, those that have not said hello, or wait to be refused. */
  strangers = 0;
  /** Of these, those that wait to be refused. */
  refused = 0;
  /** Connections that came in, since the start. */
  accepted = 0;
  /** Connections that found no room, since the start. */
  turnedAway = 0;

  constructor(limits: ServerLimits) {
    this.#limits = limits;
  }

  /** Is there room for one more? Null, or why not. Nothing is counted. */
  reason({ local, address }: Origin): ProtocolError | null {
    const { connections, connectionsPerAddress, strangers } = this.#limits;
    if (this.inside >= connections) return full(`at most ${connections} connections`);
    if (this.strangers >= strangers) return full(`at most ${strangers} connections that have not said hello`);
    if (!local && (this.#byNeighbourhood.get(neighbourhood(address)) ?? 0) >= connectionsPerAddress) {
      return full(`at most ${connectionsPerAddress} connections from one address`);
    }
    return null;
  }

  /** One more is inside, a stranger as yet. */
  enter({ local, address }: Origin): void {
    this.inside++;
    this.accepted++;
    this.strangers++;
    if (local) return;
    const near = neighbourhood(address);
    this.#byNeighbourhood.set(near, (this.#byNeighbourhood.get(near) ?? 0) + 1);
  }

  leave({ local, address }: Origin): void {
    this.inside--;
    if (local) return;
    const near = neighbourhood(address);
    const left = (this.#byNeighbourhood.get(near) ?? 0) - 1;
    if (left > 0) this.#byNeighbourhood.set(near, left);
    else this.#byNeighbourhood.delete(near);
  }
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
