/**
 * The SPI as frames, both ways. Frames are written as text by hand: they are small arrays of plain parts, and this is
 * the hot path of client and server. docs/reference/protocol.md is the specification.
 */

import type {
  Answer,
  Claim,
  ClaimId,
  ClaimView,
  Ending,
  Hold,
  ListFilter,
  Pause,
  RevokeTarget,
} from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import { LIMITS, ProtocolError, parsed } from "./hello.ts";

/** A waiting answer with where the claim stands among all the server has seen: shown again when reclaiming. */
export type WireAnswer = Answer & { readonly arrival?: number };

/** One claim as a client saw it last, for a server that may have forgotten it. */
export interface Reclaimed {
  readonly claim: Claim;
  readonly was:
    | { readonly state: "held"; readonly token: bigint; readonly tokens: number; readonly leftMs: number }
    | { readonly state: "waiting"; readonly arrival: number };
}

/** The frames of a line, after its start id. @throws ProtocolError */
export function decodeLine(line: string, start: string): readonly unknown[] {
  const whole = parsed(line);
  if (!Array.isArray(whole)) throw new ProtocolError("PROTOCOL", "a line must be an array");
  if (whole[0] !== start) throw new ProtocolError("START", "a line must begin with the server's start id");
  return whole;
}

export function encodeClaim(n: number, claim: Claim, label: string): string {
  return `["claim",${n},${terms(claim, label)}]`;
}

/** A claim's id, holds, ttl and options, without brackets. */
function terms(claim: Claim, label: string): string {
  const { holds } = claim;
  let keys = holdText(holds[0]);
  for (let at = 1; at < holds.length; at++) keys += `,${holdText(holds[at] as Hold)}`;
  const ttl = claim.ttlMs === "session" ? '"session"' : claim.ttlMs;
  const options = optionText(claim, label);
  return options === "" ? `"${claim.id}",[${keys}],${ttl}` : `"${claim.id}",[${keys}],${ttl},{${options}}`;
}

function holdText({ key, permits, limit }: Hold): string {
  const text = JSON.stringify(key);
  return permits === ALL_PERMITS && limit === ALL_PERMITS ? text : `[${text},${permits},${limit}]`;
}

function optionText(claim: Claim, label: string): string {
  let text = "";
  // a store may give fewer than were asked for
  if (claim.tokens !== 1) text = `"tokens":${Math.min(claim.tokens, LIMITS.tokens)}`;
  if (claim.floor !== 0n) text += `${text === "" ? "" : ","}"floor":"${claim.floor}"`;
  if (!claim.wait) text += `${text === "" ? "" : ","}"wait":false`;
  if (claim.label !== label) text += `${text === "" ? "" : ","}"label":${JSON.stringify(claim.label)}`;
  return text;
}

/** Claims the server has answered by their ids; the others whole, so that a relay knows what they are. */
export function encodeRenew<T extends { readonly claim: Claim }>(
  n: number,
  all: readonly T[],
  familiar: (one: T) => boolean,
  label: string,
): string {
  const items = all.map((one) => (familiar(one) ? `"${one.claim.id}"` : `[${terms(one.claim, label)}]`));
  return `["renew",${n},[${items.join()}]]`;
}

/** Ids whose `claim` was never answered come with their ttl, for which the server remembers them. */
export function encodeRelease(n: number, claims: readonly Claim[], unanswered?: ReadonlySet<ClaimId>): string {
  let items = "";
  for (const { id, ttlMs } of claims) {
    if (items !== "") items += ",";
    items += unanswered?.has(id) ? `["${id}",${JSON.stringify(ttlMs)}]` : `"${id}"`;
  }
  return `["release",${n},[${items}]]`;
}

export function encodeDetach(n: number, claims: readonly Claim[], leftMs?: number): string {
  const left = leftMs === undefined ? "" : `,${Math.ceil(leftMs)}`;
  return `["detach",${n},[${claims.map(({ id }) => `"${id}"`).join()}]${left}]`;
}

export function encodeRevoke(n: number, targets: readonly RevokeTarget[]): string {
  const items = targets.map(({ key, token, now, reason }) => {
    const why = reason === undefined ? "" : `,${JSON.stringify(reason)}`;
    return `[${JSON.stringify(key)},"${token}",${now}${why}]`;
  });
  return `["revoke",${n},[${items.join()}]]`;
}

export function encodeList(n: number, { key, prefix }: ListFilter, max: number, after?: string): string {
  const filter = JSON.stringify(key === undefined ? { prefix } : { key });
  return `["list",${n},${filter},${max}${after === undefined ? "" : `,${JSON.stringify(after)}`}]`;
}

/** last: no further reclaim frame follows. */
export function encodeReclaim(n: number, items: readonly Reclaimed[], label: string, last: boolean): string {
  const texts = items.map(({ claim, was }) => {
    const state =
      was.state === "held"
        ? `["held","${was.token}",${was.tokens},${Math.floor(was.leftMs)}]`
        : `["waiting",${was.arrival}]`;
    return `[[${terms(claim, label)}],${state}]`;
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

export function encodeNudge(id: ClaimId): string {
  return `["nudge","${id}"]`;
}

export function encodeAnswer(answer: Answer, arrival: number): string {
  switch (answer.state) {
    case "held":
      return `["held","${answer.token}",${answer.tokens},${Math.floor(answer.ttlMs)}]`;
    case "waiting":
      return `["waiting",${Math.floor(answer.ttlMs)},${Math.ceil(answer.recheckMs)},${arrival}${pauseText(answer)}]`;
    case "none": {
      const { reason, paused } = answer;
      if (paused !== undefined) return `["none",${reason === undefined ? null : `"${reason}"`}${pauseText(answer)}]`;
      return reason === undefined ? '["none"]' : `["none","${reason}"]`;
    }
  }
}

function pauseText({ paused }: { readonly paused?: Pause }): string {
  return paused === undefined ? "" : `,["${paused.reason}",${Math.ceil(paused.remainingMs)}]`;
}

export function encodeFlags(flags: readonly boolean[]): string {
  let text = "";
  for (const flag of flags) text += text === "" ? (flag ? "1" : "0") : flag ? ",1" : ",0";
  return `[${text}]`;
}

const NONE: Answer = { state: "none" };
const NONE_BECAUSE: Readonly<Record<Ending, Answer>> = {
  expired: { state: "none", reason: "expired" },
  released: { state: "none", reason: "released" },
  revoked: { state: "none", reason: "revoked" },
  maxHold: { state: "none", reason: "maxHold" },
};

/** In answer to a renewal; undefined: the server cannot tell now. @throws ProtocolError */
export function decodeRenewed(raw: unknown): WireAnswer | undefined {
  return raw === null ? undefined : decodeAnswer(raw);
}

/** @throws ProtocolError */
export function decodeAnswer(raw: unknown): WireAnswer {
  if (Array.isArray(raw)) {
    const [state, a, b, c, d] = raw as unknown[];
    if (state === "held" && isDecimal(a) && isCount(b) && isCount(c)) {
      return { state, token: BigInt(a), tokens: b, ttlMs: c };
    }
    if (state === "waiting" && isCount(a) && isCount(b)) {
      return { state, ttlMs: a, recheckMs: b, arrival: isCount(c) ? c : 0, ...pausedBy(d) };
    }
    if (state === "none") {
      const none = typeof a === "string" && Object.hasOwn(NONE_BECAUSE, a) ? NONE_BECAUSE[a as Ending] : NONE;
      return b === undefined ? none : { ...none, ...pausedBy(b) };
    }
  }
  throw new ProtocolError("PROTOCOL", "an answer is malformed");
}

/** A reason that we do not know yet is a pause all the same. */
function pausedBy(raw: unknown): { readonly paused?: Pause } {
  if (!Array.isArray(raw) || !isCount(raw[1])) return {};
  return { paused: { reason: raw[0] === "gracePeriod" ? "gracePeriod" : "recovery", remainingMs: raw[1] } };
}

/** @throws ProtocolError unless it is an array of that length */
export function decodeList<T>(raw: unknown, length: number, one: (item: unknown) => T): T[] {
  if (!Array.isArray(raw) || raw.length !== length) throw new ProtocolError("PROTOCOL", "a reply is malformed");
  return raw.map(one);
}

export function decodeFlag(raw: unknown): boolean {
  return raw === 1 || raw === true;
}

export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

export function isDecimal(value: unknown): value is string {
  return typeof value === "string" && /^\d{1,19}$/.test(value);
}

/** One claim as tools see it. */
export function encodeView(view: ClaimView): string {
  const { tag, holds, ttlMs, tokens, floor, wait, label, answer, ageMs, heldMs } = view;
  const keys = holds.map(holdText).join();
  const more = `{"tokens":${tokens},"floor":"${floor}","wait":${wait},"label":${JSON.stringify(label)}}`;
  const ages = heldMs === undefined ? Math.floor(ageMs) : `${Math.floor(ageMs)},${Math.floor(heldMs)}`;
  return `["${tag}",[${keys}],${JSON.stringify(ttlMs)},${more},${encodeAnswer(answer, 0)},${ages}]`;
}

/** @throws ProtocolError */
function decodeView(raw: unknown): ClaimView {
  if (!Array.isArray(raw)) throw new ProtocolError("PROTOCOL", "a listed claim is malformed");
  const [tag, holds, ttlMs, more, answer, ageMs, heldMs] = raw as unknown[];
  const { tokens, floor, wait, label } = (more ?? {}) as Readonly<Record<string, unknown>>;
  const wellFormed =
    typeof tag === "string" &&
    Array.isArray(holds) &&
    holds.length > 0 &&
    isTtl(ttlMs) &&
    isCount(tokens) &&
    isDecimal(floor) &&
    typeof label === "string" &&
    isCount(ageMs);
  if (!wellFormed) throw new ProtocolError("PROTOCOL", "a listed claim is malformed");
  const listed = holds.map(decodeHold) as unknown as readonly [Hold, ...Hold[]];
  const what = { tag, holds: listed, ttlMs, tokens, floor: BigInt(floor), wait: wait !== false, label };
  return { ...what, answer: decodeAnswer(answer), ageMs, ...(isCount(heldMs) && { heldMs }) };
}

/** A hold as it stands in a frame: a key for all its permits, or [key, permits, limit]. Only its form is checked. */
export function decodeHold(raw: unknown): Hold {
  if (typeof raw === "string") return { key: raw, permits: ALL_PERMITS, limit: ALL_PERMITS };
  if (Array.isArray(raw)) {
    const [key, permits, limit] = raw as unknown[];
    if (typeof key === "string" && isCount(permits) && isCount(limit)) return { key, permits, limit };
  }
  throw new ProtocolError("PROTOCOL", "a hold must be a key or [key, permits, limit]");
}

function isTtl(value: unknown): value is number | "session" {
  return value === "session" || isCount(value);
}

/** The result of `list`. @throws ProtocolError */
export function decodePage(raw: unknown): { readonly views: readonly ClaimView[]; readonly more: boolean } {
  if (!Array.isArray(raw) || !Array.isArray(raw[0])) throw new ProtocolError("PROTOCOL", "a listing is malformed");
  return { views: (raw[0] as unknown[]).map(decodeView), more: raw[1] === true };
}
