/**
 * Encodes and decodes the calls of the SPI as frames, both ways. The text of frames is built by hand: they are small arrays
 * of plain values, and this is the hot path of client and server. docs/reference/protocol.md is the specification.
 */

import type {
  Answer,
  Claim,
  ClaimId,
  ClaimView,
  EndReason,
  ListQuery,
  LockSpec,
  Page,
  Pause,
  Release,
  RevokeTarget,
} from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import { ProtocolError, parseJson } from "./handshake.ts";

/** An answer; while waiting with the claim's arrival at the server, which the client reports when it reclaims. */
export type WireAnswer = Answer & { readonly arrival?: number };

/** One claim with the last state that its client has seen, for a server that may have lost it. */
export interface ReclaimItem {
  readonly claim: Claim;
  readonly lastState:
    | { readonly state: "held"; readonly token: bigint; readonly tokenCount: number; readonly remainingMs: number }
    | { readonly state: "waiting"; readonly arrival: number };
}

/** Returns the run id and the frames of a line; checks the run id. @throws ProtocolError */
export function decodeLine(line: string, runId: string): readonly unknown[] {
  const frames = parseJson(line);
  if (!Array.isArray(frames)) throw new ProtocolError("PROTOCOL", "a line must be an array");
  if (frames[0] !== runId) throw new ProtocolError("RUN_ID", "a line must begin with the server's run id");
  return frames;
}

/** How the server names claims without a label, and the longest token range that it accepts. */
export interface ClaimEncoding {
  readonly label: string;
  readonly maxTokens: number;
}

export function encodeClaim(n: number, claim: Claim, encoding: ClaimEncoding): string {
  return `["claim",${n},${encodeClaimFields(claim, encoding)}]`;
}

/** A claim's id, lock specs, ttl and options, without brackets. */
function encodeClaimFields(claim: Claim, encoding: ClaimEncoding): string {
  const { locks } = claim;
  let keys = encodeLockSpec(locks[0]);
  for (let index = 1; index < locks.length; index++) keys += `,${encodeLockSpec(locks[index] as LockSpec)}`;
  const ttl = claim.ttlMs === "session" ? '"session"' : claim.ttlMs;
  const options = encodeOptions(claim, encoding);
  return options === "" ? `"${claim.id}",[${keys}],${ttl}` : `"${claim.id}",[${keys}],${ttl},{${options}}`;
}

function encodeLockSpec({ key, permits, limit }: LockSpec): string {
  const text = JSON.stringify(key);
  return permits === ALL_PERMITS && limit === ALL_PERMITS ? text : `[${text},${permits},${limit}]`;
}

function encodeOptions(claim: Claim, { label, maxTokens }: ClaimEncoding): string {
  let text = "";
  // the server limits the number of tokens; a store may set aside fewer than requested
  if (claim.tokenCount !== 1) text = `"tokens":${Math.min(claim.tokenCount, maxTokens)}`;
  if (claim.floor !== 0n) text += `${text === "" ? "" : ","}"floor":"${claim.floor}"`;
  if (!claim.wait) text += `${text === "" ? "" : ","}"wait":false`;
  if (claim.recall) text += `${text === "" ? "" : ","}"recall":true`;
  if (claim.successors) text += `${text === "" ? "" : ","}"successors":true`;
  if (claim.label !== label) text += `${text === "" ? "" : ","}"label":${JSON.stringify(claim.label)}`;
  return text;
}

/**
 * Sends the id of claims that the server has answered; other claims completely, since a restarted server judges the rights by
 * their keys.
 * `tokenCounts`: how many tokens each should have in all; 0: as many as it has.
 */
export function encodeRenew<T extends { readonly claim: Claim }>(
  n: number,
  items: readonly T[],
  isKnownToServer: (item: T) => boolean,
  encoding: ClaimEncoding,
  tokenCounts: readonly number[] = [],
): string {
  const texts = items.map((item) =>
    isKnownToServer(item) ? `"${item.claim.id}"` : `[${encodeClaimFields(item.claim, encoding)}]`,
  );
  if (!tokenCounts.some((count) => count > 0)) return `["renew",${n},[${texts.join()}]]`;
  const countTexts = tokenCounts.map((count) => Math.min(count, encoding.maxTokens));
  return `["renew",${n},[${texts.join()}],[${countTexts.join()}]]`;
}

/** Ids with an unanswered `claim` call have their ttl, for which the server keeps a tombstone. */
export function encodeRelease(n: number, releases: readonly Release[]): string {
  let text = "";
  for (const { claim, hasUnansweredClaim } of releases) {
    if (text !== "") text += ",";
    text += hasUnansweredClaim ? `["${claim.id}",${JSON.stringify(claim.ttlMs)}]` : `"${claim.id}"`;
  }
  return `["release",${n},[${text}]]`;
}

export function encodeDetach(n: number, claims: readonly Claim[], remainingMs?: number): string {
  const ttlText = remainingMs === undefined ? "" : `,${Math.ceil(remainingMs)}`;
  return `["detach",${n},[${claims.map(({ id }) => `"${id}"`).join()}]${ttlText}]`;
}

export function encodeSuspend(n: number, claims: readonly Claim[], isSuspended: boolean): string {
  return `["suspend",${n},[${claims.map(({ id }) => `"${id}"`).join()}],${isSuspended}]`;
}

export function encodeRevoke(n: number, targets: readonly RevokeTarget[]): string {
  const texts = targets.map(({ key, token, now, reason }) => {
    const reasonText = reason === undefined ? "" : `,${JSON.stringify(reason)}`;
    return `[${JSON.stringify(key)},"${token}",${now}${reasonText}]`;
  });
  return `["revoke",${n},[${texts.join()}]]`;
}

export function encodeList(n: number, { key, prefix }: ListQuery, max: number, after?: string): string {
  const filter = JSON.stringify(key === undefined ? { prefix } : { key });
  return `["list",${n},${filter},${max}${after === undefined ? "" : `,${JSON.stringify(after)}`}]`;
}

/** last: no further reclaim frame follows. */
export function encodeReclaim(
  n: number,
  items: readonly ReclaimItem[],
  encoding: ClaimEncoding,
  last: boolean,
): string {
  const texts = items.map(({ claim, lastState }) => {
    const state =
      lastState.state === "held"
        ? `["held","${lastState.token}",${Math.min(lastState.tokenCount, encoding.maxTokens)},${Math.floor(lastState.remainingMs)}]`
        : `["waiting",${lastState.arrival}]`;
    return `[[${encodeClaimFields(claim, encoding)}],${state}]`;
  });
  return `["reclaim",${n},[${texts.join()}],${last}]`;
}

export function encodePing(n: number): string {
  return `["ping",${n}]`;
}

export function encodeOk(n: number, result: string): string {
  return `["ok",${n},${result}]`;
}

export function encodeError(n: number, code: string, message: string): string {
  return `["error",${n},"${code}",${JSON.stringify(message)}]`;
}

export function encodePush(id: ClaimId, answer: string): string {
  return `["push","${id}",${answer}]`;
}

export function encodeRecheck(id: ClaimId): string {
  return `["recheck","${id}"]`;
}

export function encodeRecalled(id: ClaimId): string {
  return `["recalled","${id}"]`;
}

export function encodeAnswer(answer: Answer, arrival: number): string {
  switch (answer.state) {
    case "held":
      return `["held","${answer.token}",${answer.tokenCount},${Math.floor(answer.remainingMs)}${encodeHeldFlags(answer)}]`;
    case "waiting":
      return `["waiting",${Math.floor(answer.remainingMs)},${Math.ceil(answer.recheckMs)},${arrival}${encodePause(answer)}]`;
    case "none": {
      const { reason, paused } = answer;
      if (paused !== undefined) return `["none",${reason === undefined ? null : `"${reason}"`}${encodePause(answer)}]`;
      return reason === undefined ? '["none"]' : `["none","${reason}"]`;
    }
  }
}

function encodeHeldFlags({
  recalled,
  successors,
}: {
  readonly recalled?: boolean;
  readonly successors?: readonly ClaimId[];
}): string {
  if (successors !== undefined) return `,${recalled ? 1 : 0},${JSON.stringify(successors)}`;
  return recalled ? ",1" : "";
}

function encodePause({ paused }: { readonly paused?: Pause }): string {
  return paused === undefined ? "" : `,["${paused.reason}",${Math.ceil(paused.remainingMs)}]`;
}

export function encodeFlags(flags: readonly boolean[]): string {
  let text = "";
  for (const flag of flags) text += text === "" ? (flag ? "1" : "0") : flag ? ",1" : ",0";
  return `[${text}]`;
}

const NONE_ANSWER: Answer = { state: "none" };
const NONE_ANSWERS: Readonly<Record<EndReason, Answer>> = {
  expired: { state: "none", reason: "expired" },
  released: { state: "none", reason: "released" },
  revoked: { state: "none", reason: "revoked" },
  maxHold: { state: "none", reason: "maxHold" },
};

/** Decodes the answer to a renewal; undefined: the server does not know it now. @throws ProtocolError */
export function decodeRenewAnswer(raw: unknown): WireAnswer | undefined {
  return raw === null ? undefined : decodeAnswer(raw);
}

/** @throws ProtocolError */
export function decodeAnswer(raw: unknown): WireAnswer {
  if (Array.isArray(raw)) {
    const [state, a, b, c, d, e] = raw as unknown[];
    if (state === "held" && isDecimalString(a) && isCount(b) && isCount(c)) {
      const held = { state, token: BigInt(a), tokenCount: b, remainingMs: c } as const;
      if (e === undefined) return decodeFlag(d) ? { ...held, recalled: true } : held;
      if (Array.isArray(e) && e.every((id) => typeof id === "string"))
        return { ...held, ...(decodeFlag(d) && { recalled: true }), successors: e };
    }
    if (state === "waiting" && isCount(a) && isCount(b)) {
      return { state, remainingMs: a, recheckMs: b, arrival: isCount(c) ? c : 0, ...decodePause(d) };
    }
    if (state === "none") {
      const none = typeof a === "string" && Object.hasOwn(NONE_ANSWERS, a) ? NONE_ANSWERS[a as EndReason] : NONE_ANSWER;
      return b === undefined ? none : { ...none, ...decodePause(b) };
    }
  }
  throw new ProtocolError("PROTOCOL", "an answer is malformed");
}

/** An unknown reason, from a later version, still means a pause. */
function decodePause(raw: unknown): { readonly paused?: Pause } {
  if (!Array.isArray(raw) || !isCount(raw[1])) return {};
  return { paused: { reason: raw[0] === "gracePeriod" ? "gracePeriod" : "recovery", remainingMs: raw[1] } };
}

/** @throws ProtocolError unless it is an array of that length */
export function decodeArray<T>(raw: unknown, length: number, decodeItem: (item: unknown) => T): T[] {
  if (!Array.isArray(raw) || raw.length !== length) throw new ProtocolError("PROTOCOL", "a reply is malformed");
  return raw.map(decodeItem);
}

export function decodeFlag(raw: unknown): boolean {
  return raw === 1 || raw === true;
}

export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

export function isDecimalString(value: unknown): value is string {
  return typeof value === "string" && /^\d{1,19}$/.test(value);
}

/** Encodes one claim of a list. */
export function encodeView(view: ClaimView): string {
  const { tag, locks, ttlMs, tokenCount, floor, wait, label, answer, ageMs, heldMs } = view;
  const keys = locks.map(encodeLockSpec).join();
  const options = `{"tokens":${tokenCount},"floor":"${floor}","wait":${wait},"label":${JSON.stringify(label)}}`;
  const agesText = heldMs === undefined ? Math.floor(ageMs) : `${Math.floor(ageMs)},${Math.floor(heldMs)}`;
  return `["${tag}",[${keys}],${JSON.stringify(ttlMs)},${options},${encodeAnswer(answer, 0)},${agesText}]`;
}

/** @throws ProtocolError */
function decodeView(raw: unknown): ClaimView {
  if (!Array.isArray(raw)) throw new ProtocolError("PROTOCOL", "a listed claim is malformed");
  const [tag, locks, ttlMs, options, answer, ageMs, heldMs] = raw as unknown[];
  const { tokens, floor, wait, label } = (options ?? {}) as Readonly<Record<string, unknown>>;
  const isWellFormed =
    typeof tag === "string" &&
    Array.isArray(locks) &&
    locks.length > 0 &&
    isTtl(ttlMs) &&
    isCount(tokens) &&
    isDecimalString(floor) &&
    typeof label === "string" &&
    isCount(ageMs);
  if (!isWellFormed) throw new ProtocolError("PROTOCOL", "a listed claim is malformed");
  const specs = locks.map(decodeLockSpec) as unknown as readonly [LockSpec, ...LockSpec[]];
  const claimFields = {
    tag,
    locks: specs,
    ttlMs,
    tokenCount: tokens,
    floor: BigInt(floor),
    wait: wait !== false,
    label,
  };
  return { ...claimFields, answer: decodeAnswer(answer), ageMs, ...(isCount(heldMs) && { heldMs }) };
}

/** Decodes a lock spec: a key for all its permits, or [key, permits, limit]. Checks only the form. */
export function decodeLockSpec(raw: unknown): LockSpec {
  if (typeof raw === "string") return { key: raw, permits: ALL_PERMITS, limit: ALL_PERMITS };
  if (Array.isArray(raw)) {
    const [key, permits, limit] = raw as unknown[];
    if (typeof key === "string" && isCount(permits) && isCount(limit)) return { key, permits, limit };
  }
  throw new ProtocolError("PROTOCOL", "a lock must be a key or [key, permits, limit]");
}

function isTtl(value: unknown): value is number | "session" {
  return value === "session" || isCount(value);
}

/** The result of `list`. @throws ProtocolError */
export function decodePage(raw: unknown): Page<ClaimView> {
  if (!Array.isArray(raw) || !Array.isArray(raw[0])) throw new ProtocolError("PROTOCOL", "a listing is malformed");
  const items = (raw[0] as unknown[]).map(decodeView);
  const last = items.at(-1);
  return raw[1] === true && last !== undefined ? { items, next: last.tag } : { items };
}
