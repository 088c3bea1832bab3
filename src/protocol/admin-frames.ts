/**
 * The frames for operators, both ways: events (history, watch, unwatch) and the properties of the server (info).
 * docs/reference/protocol.md is the specification.
 */

import { decodeArray, isCount, isDecimalString } from "./frames.ts";
import { ProtocolError } from "./handshake.ts";

/** One event for operators and programs, without the claim's secret id. */
export interface ServerEvent<Kind extends string = string> {
  /** Rises with every event of a server run. */
  readonly seq: number;
  /** The server's wall clock in milliseconds since 1970. */
  readonly at: number;
  readonly kind: Kind;
  /** The keys of the claim that the reader may see. */
  readonly keys: readonly string[];
  readonly tag: string;
  readonly label: string;
  /** The first token of a held claim. */
  readonly token?: bigint;
  /** The account that placed the claim; "" if the server has no accounts. */
  readonly account: string;
  /** The account that revoked or removed the claim, and the reason. */
  readonly operator?: string;
  readonly reason?: string;
}

/** The properties of a server. */
export interface ServerInfo {
  readonly version: string;
  readonly protocol: number;
  readonly runId: string;
  /** How long it has been running, in milliseconds. */
  readonly upMs: number;
  /** Its wall clock in milliseconds since 1970. */
  readonly wallMs: number;
  /** Milliseconds until recovery ends and new grants are made; 0 when not recovering. */
  readonly recoveryRemainingMs: number;
  /** Why it grants nothing new; "" if it does. */
  readonly reason: string;
  /** The caller's account; "" if the server has no accounts. */
  readonly account: string;
  /** What the caller may do with the requested key. */
  readonly rights: readonly string[];
  /** The load of the server; only for callers that may see all keys. */
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

/** after: the seq of the last event that the client has seen, to continue behind it. */
export function encodeWatch(n: number, prefix: string, after?: number): string {
  return `["watch",${n},${JSON.stringify(prefix)}${after === undefined ? "" : `,${after}`}]`;
}

export function encodeInfo(n: number, key: string): string {
  return `["info",${n},${JSON.stringify(key)}]`;
}

export function encodeEvents(events: readonly ServerEvent[]): string {
  return `[${events.map(encodeEvent).join()}]`;
}

/** Encodes a frame with events for the watch number n. */
export function encodeWatchFrame(n: number, events: readonly ServerEvent[], hasGap: boolean): string {
  return `["events",${n},${encodeEvents(events)},${hasGap}]`;
}

function encodeEvent({ seq, at, kind, keys, tag, label, token, account, operator, reason }: ServerEvent): string {
  const moreText = operator === undefined ? "" : `,${JSON.stringify({ operator, reason })}`;
  const tokenText = token === undefined ? "null" : `"${token}"`;
  const [keyText, labelText] = [JSON.stringify(keys), JSON.stringify(label)];
  return `[${seq},${at},"${kind}",${keyText},"${tag}",${labelText},${tokenText},${JSON.stringify(account)}${moreText}]`;
}

/** @throws ProtocolError */
export function decodeEvents(raw: unknown): ServerEvent[] {
  if (!Array.isArray(raw)) throw new ProtocolError("PROTOCOL", "events are malformed");
  return decodeArray(raw, raw.length, decodeEvent);
}

/** Decodes a frame with events of a watch. @throws ProtocolError */
export function decodeWatchFrame(frame: readonly unknown[]): { readonly events: ServerEvent[]; readonly gap: boolean } {
  return { events: decodeEvents(frame[2]), gap: frame[3] === true };
}

function decodeEvent(raw: unknown): ServerEvent {
  const [seq, at, kind, keys, tag, label, token, account, more] = Array.isArray(raw) ? (raw as unknown[]) : [];
  const isWellFormed =
    isCount(seq) &&
    isCount(at) &&
    typeof kind === "string" &&
    Array.isArray(keys) &&
    keys.every((key) => typeof key === "string") &&
    typeof tag === "string" &&
    typeof label === "string" &&
    typeof account === "string" &&
    (token === null || isDecimalString(token));
  if (!isWellFormed) throw new ProtocolError("PROTOCOL", "an event is malformed");
  const { operator, reason } = (more ?? {}) as { readonly operator?: unknown; readonly reason?: unknown };
  return {
    ...{ seq, at, kind, keys, tag, label, account },
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
    [info.version, info.runId, info.reason, info.account].every((text) => typeof text === "string") &&
    [info.protocol, info.upMs, info.wallMs, info.recoveryRemainingMs].every(isCount) &&
    Array.isArray(info.rights) &&
    (info.load === undefined || (typeof info.load === "object" && Object.values(info.load).every(isCount)));
  if (!isWellFormed) throw new ProtocolError("PROTOCOL", "the reply to info is malformed");
  return info;
}
