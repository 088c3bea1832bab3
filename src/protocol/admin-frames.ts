/**
 * The frames that serve people rather than locks, both ways: what happened (history, watch, unwatch) and what the server
 * is (info). docs/reference/protocol.md is the specification.
 */

import { decodeArray, isCount, isDecimalString } from "./frames.ts";
import { ProtocolError } from "./handshake.ts";

/** One event as people and programs see it: without the claim's id, which is a secret. */
export interface ServerEvent<Kind extends string = string> {
  /** Rises from event to event within one run of the server. */
  readonly seq: number;
  /** The server's wall clock, milliseconds since 1970. */
  readonly at: number;
  readonly kind: Kind;
  /** Those of the claim's keys that the reader may see. */
  readonly keys: readonly string[];
  readonly tag: string;
  readonly label: string;
  /** Of holds: the first of its run. */
  readonly token?: bigint;
  /** The account that placed the claim; "" where the server has none. */
  readonly by: string;
  /** Who had it revoked or removed, and why. */
  readonly operator?: string;
  readonly reason?: string;
}

/** What a server says of itself. */
export interface ServerInfo {
  readonly version: string;
  readonly protocol: number;
  readonly start: string;
  /** How long it has run, milliseconds. */
  readonly upMs: number;
  /** Its wall clock, milliseconds since 1970. */
  readonly wallMs: number;
  /** Milliseconds until new grants are made; 0: they are. */
  readonly reclaimMs: number;
  /** Why it grants nothing that is new; "": it does. */
  readonly why: string;
  /** What stands behind it: "table", or the name of a driver. */
  readonly store: string;
  /** The caller's account; "" where the server asks for none. */
  readonly account: string;
  /** What the caller may do with the key it has asked about. */
  readonly rights: readonly string[];
  /** How much it has to do; only for those who may see everything. */
  readonly load?: {
    readonly connections: number;
    readonly sessions: number;
    readonly held: number;
    readonly waiting: number;
  };
}

export function encodeHistory(n: number, key: string, max: number): string {
  return `["history",${n},${JSON.stringify(key)},${max}]`;
}

/** after: the number of the last event that is known, to go on from there. */
export function encodeWatch(n: number, prefix: string, after?: number): string {
  return `["watch",${n},${JSON.stringify(prefix)}${after === undefined ? "" : `,${after}`}]`;
}

export function encodeInfo(n: number, key: string): string {
  return `["info",${n},${JSON.stringify(key)}]`;
}

export function encodeEvents(events: readonly ServerEvent[]): string {
  return `[${events.map(encodeEvent).join()}]`;
}

/** A frame that the watch number n brings. */
export function encodeWatchFrame(n: number, events: readonly ServerEvent[], hasGap: boolean): string {
  return `["events",${n},${encodeEvents(events)},${hasGap}]`;
}

function encodeEvent({ seq, at, kind, keys, tag, label, token, by, operator, reason }: ServerEvent): string {
  const moreText = operator === undefined ? "" : `,${JSON.stringify({ operator, reason })}`;
  const tokenText = token === undefined ? "null" : `"${token}"`;
  const [keyText, labelText] = [JSON.stringify(keys), JSON.stringify(label)];
  return `[${seq},${at},"${kind}",${keyText},"${tag}",${labelText},${tokenText},${JSON.stringify(by)}${moreText}]`;
}

/** @throws ProtocolError */
export function decodeEvents(raw: unknown): ServerEvent[] {
  if (!Array.isArray(raw)) throw new ProtocolError("PROTOCOL", "events are malformed");
  return decodeArray(raw, raw.length, decodeEvent);
}

/** The frame of a watch: what it brings. @throws ProtocolError */
export function decodeWatchFrame(frame: readonly unknown[]): { readonly events: ServerEvent[]; readonly gap: boolean } {
  return { events: decodeEvents(frame[2]), gap: frame[3] === true };
}

function decodeEvent(raw: unknown): ServerEvent {
  const [seq, at, kind, keys, tag, label, token, by, more] = Array.isArray(raw) ? (raw as unknown[]) : [];
  const isWellFormed =
    isCount(seq) &&
    isCount(at) &&
    typeof kind === "string" &&
    Array.isArray(keys) &&
    keys.every((key) => typeof key === "string") &&
    typeof tag === "string" &&
    typeof label === "string" &&
    typeof by === "string" &&
    (token === null || isDecimalString(token));
  if (!isWellFormed) throw new ProtocolError("PROTOCOL", "an event is malformed");
  const { operator, reason } = (more ?? {}) as { readonly operator?: unknown; readonly reason?: unknown };
  return {
    ...{ seq, at, kind, keys, tag, label, by },
    ...(token !== null && { token: BigInt(token) }),
    ...(typeof operator === "string" && { operator }),
    ...(typeof reason === "string" && { reason }),
  };
}

/** @throws ProtocolError */
export function decodeInfo(raw: unknown): ServerInfo {
  const info = raw as ServerInfo | null;
  const isWellFormed =
    typeof info === "object" &&
    info !== null &&
    [info.version, info.start, info.why, info.store, info.account].every((text) => typeof text === "string") &&
    [info.protocol, info.upMs, info.wallMs, info.reclaimMs].every(isCount) &&
    Array.isArray(info.rights) &&
    (info.load === undefined || (typeof info.load === "object" && Object.values(info.load).every(isCount)));
  if (!isWellFormed) throw new ProtocolError("PROTOCOL", "what the server says of itself is malformed");
  return info;
}
