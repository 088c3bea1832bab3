/**
 * The bodies of requests and responses, once: requests are validated with these schemas, and they are the components of
 * the OpenAPI document. Only routes import them, since published type declarations must not need zod.
 */

import { z } from "@hono/zod-openapi";
import type { DetachedClaim } from "../../protocol/lock-reference.ts";
import { decodeReference } from "../../protocol/lock-reference.ts";
import { ALL_ERROR_CODES, ERROR_CODES } from "../../server/error-codes.ts";
import { EVENT_KINDS } from "../../server/events/event-ring.ts";
import type { ServerLimits } from "../../server/limits.ts";
import { formatExactDuration } from "../../server/limits.ts";
import type { Claim, LockSpec, RevokeTarget, Traits } from "../../spi/driver.ts";
import { ALL_PERMITS, MAX_LOCKS } from "../../spi/driver.ts";
import { MAX_DURATION_MS, MIN_TTL_MS, parseDuration } from "../../util/duration.ts";
import { randomId } from "../../util/ids.ts";
import { cleanLabel, MAX_KEY_BYTES, validateKey } from "../../util/keys.ts";
import type { SessionRequest } from "../dashboard/view-types.ts";
import { invalidField, Problem } from "./problem.ts";

/** The longest wait of one request. After that the client receives "waiting" and may repeat the request. */
const MAX_WAIT_MS = 25_000;
const DEFAULT_TTL_MS = 30_000;
/** The prefix of the reference of a waiting claim. Commands and libraries accept only references of held claims. */
export const WAIT_PREFIX = "wait.";

/** A claim as a reference identifies it. */
export interface ParsedReference {
  readonly parts: readonly DetachedClaim[];
  readonly isWaiting: boolean;
  readonly text: string;
}

/** Adds a fault with a reason, for Problem.reason. */
function addFault(ctx: z.RefinementCtx, reason: string, message: string, path: string[] = []): void {
  ctx.addIssue({ code: "custom", params: { reason }, message, path });
}

// Values

const DURATION_FAULT = 'must be milliseconds or a string such as "30s", "5m" or "1h"';
export const Duration: z.ZodType<number> = z
  .union(
    [
      z.number().meta({ type: "integer", minimum: 0 }),
      z.string().meta({
        pattern:
          "^(?=.)(\\d{1,15}(\\.\\d{1,9})?d)?(\\d{1,15}(\\.\\d{1,9})?h)?(\\d{1,15}(\\.\\d{1,9})?m)?(\\d{1,15}(\\.\\d{1,9})?s)?(\\d{1,15}(\\.\\d{1,9})?ms)?$",
      }),
    ],
    { error: DURATION_FAULT },
  )
  .transform((value, ctx) => {
    try {
      return parseDuration(value, "");
    } catch {
      addFault(ctx, "malformed", DURATION_FAULT);
      return z.NEVER;
    }
  })
  .openapi("Duration", { description: 'Milliseconds, or a string with units: 30000, "30s", "5m", "1h".' });

const Key = z
  .string()
  .superRefine((key, ctx) => {
    try {
      validateKey(key, "");
    } catch (error) {
      addFault(ctx, "malformed", (error as TypeError).message.trimStart());
    }
  })
  .meta({
    description: "The name of a lock: 1 to 512 bytes of UTF-8 without control characters, compared bytewise.",
    minLength: 1,
    maxLength: MAX_KEY_BYTES,
  });

const Tag = z
  .string()
  .regex(/^[a-z2-7]{10}$/)
  .describe("The public name of the claim. It gives no right to the claim.");
const Token = z
  .string()
  .regex(/^\d{1,19}$/, { error: "must be a decimal string" })
  .describe("The fencing token, a decimal number.");
const NullableToken = Token.nullable().describe("The fencing token, a decimal number; null if the store has none.");
const Count = z.int().min(0);
const Mode = z.enum(["exclusive", "shared", "semaphore"]);
const Limit = z
  .int()
  .min(1)
  .max(ALL_PERMITS - 1)
  .describe("For a semaphore: the number of permits that may be taken at once.");

// Anyone can write a reference that is intact: what detach() never makes could harm the store.
const Permits = z.int().min(1).max(ALL_PERMITS);
const DetachedClaims = z
  .array(
    z
      .object({
        claim: z.object({
          locks: z
            .array(
              z
                .object({ key: z.string(), permits: Permits, limit: Permits })
                .refine(({ permits, limit }) => permits <= limit),
            )
            .max(MAX_LOCKS)
            .refine((locks) => locks.every(({ key }, index) => index === 0 || (locks[index - 1]?.key ?? "") < key)),
          ttlMs: z.union([z.literal("session"), z.int().min(MIN_TTL_MS).max(MAX_DURATION_MS)]),
        }),
        firstToken: z.bigint().min(0n),
        token: z.bigint().lt(1n << 63n),
      })
      .refine(({ firstToken, token }) => token >= firstToken),
  )
  .max(MAX_LOCKS);

/** A reference in text form, as a ParsedReference. */
const Reference = z.string().transform((value, ctx): ParsedReference => {
  const text = value.trim();
  const isWaiting = text.startsWith(WAIT_PREFIX);
  try {
    const parts = decodeReference(isWaiting ? text.slice(WAIT_PREFIX.length) : text);
    if (!DetachedClaims.safeParse(parts).success) throw new TypeError("reference must be one made by detach()");
    return { parts, isWaiting, text };
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    addFault(ctx, "malformed", error.message.replace(/^reference /, ""));
    return z.NEVER;
  }
});
const HELD = {
  pattern: "^hf1\\.[\\w-]+\\.[\\w-]{8}(\\.[\\w-]*\\.[\\w-]{22})?$",
  description:
    "Identifies the held claim; with it any process can renew and release the lock. A secret. `lock.detach()` returns the same.",
};
const WAITING = {
  pattern: "^wait\\.hf1\\.[\\w-]+\\.[\\w-]{8}(\\.[\\w-]*\\.[\\w-]{22})?$",
  description:
    "Identifies the waiting claim; with it any process can continue to wait or withdraw the claim. A secret.",
};
const HeldReference = Reference.superRefine(({ isWaiting }, ctx) => {
  if (isWaiting) addFault(ctx, "waiting", "is that of a waiting claim: POST it to /v1/claims/wait");
}).meta(HELD);
const WaitingReference = Reference.superRefine(({ isWaiting }, ctx) => {
  if (!isWaiting) addFault(ctx, "held", "is that of a held claim, not of a waiting one");
}).meta(WAITING);

/** An object with a name in the OpenAPI document. */
const component = <Shape extends z.ZodRawShape>(name: string, shape: Shape) => z.object(shape).openapi(name);

// Requests

const ClaimBody = z
  .object({
    key: Key.optional(),
    keys: z.array(Key).min(1).max(MAX_LOCKS).optional().describe("Several keys, locked together or not at all."),
    mode: Mode.optional().describe("Default: semaphore if `limit` is given, otherwise exclusive."),
    permits: z.int().min(1).optional().describe("For a semaphore: the number of permits to take. Default: 1."),
    limit: Limit.optional(),
    ttl: Duration.optional().describe(
      "The length of the lease. The lock ends with the lease unless it is renewed. Default: 30 s.",
    ),
    wait: Duration.optional().describe("The longest wait of this request, at most 25 s. 0: try once. Default: 25 s."),
    label: z.string().optional().describe("A public description of the holder. Default: the address of the client."),
  })
  .superRefine(({ key, keys }, ctx) => {
    if (key === undefined && keys === undefined) addFault(ctx, "missing", "is missing", ["key"]);
    if (key !== undefined && keys !== undefined) addFault(ctx, "conflict", "cannot be combined with key", ["keys"]);
  })
  .superRefine(({ mode, permits, limit }, ctx) => {
    if ((mode ?? (limit === undefined ? "exclusive" : "semaphore")) === "semaphore") {
      if (limit === undefined) addFault(ctx, "missing", "is missing", ["limit"]);
      else if (permits !== undefined && permits > limit)
        addFault(ctx, "range", `must be an integer from 1 to ${limit}`, ["permits"]);
      return;
    }
    if (limit !== undefined) addFault(ctx, "conflict", 'belongs to mode "semaphore"', ["limit"]);
    if (permits !== undefined) addFault(ctx, "conflict", 'belongs to mode "semaphore"', ["permits"]);
  })
  .openapi("ClaimRequest", { oneOf: [{ required: ["key"] }, { required: ["keys"] }] });

const WaitBody = component("WaitRequest", { reference: WaitingReference, wait: Duration.optional() });
const RenewBody = component("RenewRequest", { reference: HeldReference });
const ReleaseBody = component("ReleaseRequest", {
  reference: Reference.meta({ description: "The reference of a held or waiting claim.", anyOf: [HELD, WAITING] }),
});
const RevokeBody = component("RevokeRequest", {
  key: Key,
  token: Token.describe("The token of the holder. A holder with another token is not affected."),
  reason: z.string().trim().min(1).max(256).describe("The reason, for the log and the events of the key."),
  now: z
    .boolean()
    .optional()
    .describe(
      "Free the key at once, although its holder may still be working. Default: false; the key is free when its holder has released it or its lease has ended.",
    ),
});

/** The bodies, by the names of their operations. */
export const REQUESTS: Readonly<Record<"claim" | "wait" | "renew" | "release" | "revoke", z.ZodType>> = {
  claim: ClaimBody,
  wait: WaitBody,
  renew: RenewBody,
  release: ReleaseBody,
  revoke: RevokeBody,
};

/** For the pages of the dashboard, and not a part of the API. */
const SessionBody = z.union([z.strictObject({ start: z.string() }), z.strictObject({ credential: z.string() })]);

// Responses

const CLAIM = { tag: Tag, keys: z.array(Key).min(1) };
const LockInfo = component("LockInfo", {
  key: Key,
  mode: Mode,
  permits: Count.optional().describe("For a semaphore: the number of permits that the claim takes."),
  limit: Limit.optional(),
});
const ClaimInfo = component("ClaimInfo", {
  tag: Tag,
  state: z.enum(["held", "waiting"]),
  locks: z.array(LockInfo).min(1),
  label: z.string().describe("The public description of its holder or waiter."),
  token: NullableToken,
  remainingMs: Count.nullable().describe("What is left of the lease, in milliseconds; null for a session claim."),
  ageMs: Count.describe("The age of the claim in milliseconds."),
  heldMs: Count.optional().describe("How long the claim has been held, in milliseconds, if the store knows."),
});

export const Held: z.ZodType = component("Held", {
  state: z.literal("held"),
  ...CLAIM,
  reference: z.string().meta(HELD),
  token: NullableToken,
  remainingMs: Count.describe("What is left of the lease at the time of the response, in milliseconds."),
});
export const Waiting: z.ZodType = component("Waiting", {
  state: z.literal("waiting"),
  ...CLAIM,
  reference: z.string().meta(WAITING),
  graceMs: Count.describe(
    "How long the claim stays in the queue without a request that waits for it, in milliseconds.",
  ),
  paused: z
    .object({
      reason: z.enum(["recovery", "gracePeriod"]),
      remainingMs: Count.describe("The approximate rest of the pause, in milliseconds."),
    })
    .optional()
    .describe("The store grants no new locks: it is recovering after a restart, or may have lost data."),
});
export const Released: z.ZodType = component("Released", { state: z.literal("released"), ...CLAIM });
export const Revoked: z.ZodType = component("Revoked", {
  state: z.enum(["revoked", "removed"]),
  key: Key,
  token: Token.describe("The token of the revoked lock."),
});
export const Locks: z.ZodType = component("Locks", {
  locks: z.array(ClaimInfo),
  cursor: z.string().nullable().describe("The cursor for the next page; null on the last page."),
});
export const Health: z.ZodType = component("Health", {
  status: z.literal("ok"),
  version: z.string().describe("The version of the server."),
});
export const Ready: z.ZodType = component("Ready", { ready: z.literal(true) });
export const ProblemBody: z.ZodType = component("Problem", {
  type: z.literal("about:blank"),
  title: z.string().describe("The name of the HTTP status."),
  status: Count.describe("The HTTP status."),
  code: z
    .enum(ALL_ERROR_CODES.filter((code) => ERROR_CODES[code].status !== null))
    .describe("The kind of the error, for programs."),
  reason: z
    .string()
    .regex(/^[a-zA-Z]+$/)
    .describe("The reason in one word, for programs."),
  detail: z.string().describe("A message for people."),
  field: z.string().optional().describe("The invalid field, parameter or header."),
  holder: z.string().optional().describe("With BUSY: the label of a holder, if the caller may inspect the key."),
  retryMs: Count.optional().describe("When to try again, in milliseconds; also in the header Retry-After, in seconds."),
});
export const EventBody: z.ZodType = component("Event", {
  at: z.string().describe("The time, as ISO 8601."),
  kind: z.enum(EVENT_KINDS).describe("The kind of the event."),
  keys: z.array(Key),
  tag: Tag,
  label: z.string().describe("The public description of the holder or waiter."),
  token: NullableToken,
  account: z.string().describe("The account of the claim; empty if the server requires no credentials."),
  operator: z.string().optional().describe("For a revocation: the account of the operator."),
  reason: z.string().optional().describe("For a revocation: its reason."),
});

// Parsing

/** The value of a body with this schema. @throws Problem that names the first invalid field */
function parseBody<T>(schema: z.ZodType<T>, body: unknown): T {
  const { data, error } = schema.safeParse(body, { error: describeIssue, reportInput: true });
  if (error === undefined) return data as T;
  const [issue] = error.issues as [z.core.$ZodIssue];
  const field = issue.path.reduce<string>(
    (path, step) => (typeof step === "number" ? `${path}[${step}]` : `${path}${path === "" ? "" : "."}${String(step)}`),
    "",
  );
  throw invalidField(field, toReason(issue), `${field} ${issue.message}`);
}

function toReason(issue: z.core.$ZodIssue): string {
  if (issue.input === undefined && issue.code !== "custom") return "missing";
  if (issue.code === "custom") return String(issue.params?.reason ?? "malformed");
  const isNumber = issue.code === "invalid_type" && ["int", "number"].includes(issue.expected);
  return issue.code === "too_small" || issue.code === "too_big" || isNumber ? "range" : "malformed";
}

/** What is wrong, without the input: it may contain a secret. */
function describeIssue(issue: z.core.$ZodRawIssue): string {
  if (issue.input === undefined) return "is missing";
  switch (issue.code) {
    case "invalid_type":
      return TYPE_FAULTS[issue.expected] ?? `must be a ${issue.expected}`;
    case "invalid_value":
      return `must be ${issue.values
        .map((value) => JSON.stringify(value))
        .join(", ")
        .replace(/, ([^,]*)$/, " or $1")}`;
    case "too_small":
      return `must ${describeBound("at least", issue.minimum, issue.origin)}`;
    case "too_big":
      return `must ${describeBound("at most", issue.maximum, issue.origin)}`;
    default:
      return "is not valid";
  }
}

const TYPE_FAULTS: Readonly<Record<string, string>> = {
  array: "must be an array",
  boolean: "must be true or false",
  int: "must be an integer",
  number: "must be an integer",
};

function describeBound(relation: string, bound: bigint | number, origin: string): string {
  const noun = { array: "element", string: "character" }[origin];
  return noun === undefined ? `be ${relation} ${bound}` : `have ${relation} ${bound} ${noun}${bound === 1 ? "" : "s"}`;
}

/** The claim to make, and how long the request waits for it; 0: the claim never waits. */
export interface ClaimRequest {
  readonly claim: Claim;
  readonly waitMs: number;
}

/** The body of POST /v1/claims. @throws Problem that names the invalid field */
export function parseClaimRequest(
  body: unknown,
  limits: ServerLimits,
  traits: Traits,
  defaultLabel: string,
): ClaimRequest {
  checkTtl(body, limits);
  const { key, keys, mode, permits = 1, limit, ttl, wait, label } = parseBody(ClaimBody, body);
  const maxTtl = limits.ttlMs;
  if (ttl !== undefined && (ttl < MIN_TTL_MS || ttl > maxTtl)) {
    const range = `${formatExactDuration(MIN_TTL_MS)} to ${formatExactDuration(maxTtl)}`;
    throw invalidField("ttl", "range", `ttl must be from ${range}`);
  }
  const lock =
    limit === undefined ? { permits: mode === "shared" ? 1 : ALL_PERMITS, limit: ALL_PERMITS } : { permits, limit };
  // every client acquires keys in this order, which excludes deadlocks
  const sortedKeys = [...new Set(keys ?? [key as string])].sort((a, b) => (a < b ? -1 : 1));
  checkStoreTraits(traits, sortedKeys.length, lock);
  const waitMs = limitWait(wait);
  const claim: Claim = {
    id: randomId(),
    locks: sortedKeys.map((name): LockSpec => ({ key: name, ...lock })) as unknown as Claim["locks"],
    ttlMs: ttl ?? Math.min(DEFAULT_TTL_MS, maxTtl),
    tokenCount: 1,
    floor: 0n,
    wait: waitMs > 0,
    label: cleanLabel(label ?? defaultLabel),
  };
  return { claim, waitMs };
}

function checkTtl(body: unknown, limits: ServerLimits): void {
  if ((body as { ttl?: unknown }).ttl !== "session") return;
  const alternative = `use a duration (at most ${formatExactDuration(limits.ttlMs)}), and renew it if needed`;
  throw invalidField("ttl", "session", `HTTP has no sessions: ${alternative}`);
}

function limitWait(waitMs = MAX_WAIT_MS): number {
  return Math.min(waitMs, MAX_WAIT_MS);
}

function checkStoreTraits({ lease, manyKeys, permits }: Traits, keyCount: number, lock: Omit<LockSpec, "key">): void {
  if (!lease.claim)
    throw unsupportedProblem("this server's store ends locks with their session: they cannot be held over HTTP");
  if (keyCount > 1 && !manyKeys) throw unsupportedProblem("this server's store locks only one key at a time", "keys");
  if (permits === "any" || lock.permits === ALL_PERMITS) return;
  if (permits === "one") throw unsupportedProblem("this server's store supports only exclusive locks", "mode");
  if (lock.limit !== ALL_PERMITS) throw unsupportedProblem("this server's store does not support semaphores", "mode");
}

function unsupportedProblem(message: string, field?: string): Problem {
  return new Problem("UNSUPPORTED", "store", message, field === undefined ? {} : { field });
}

/** The body of POST /v1/claims/wait. @throws Problem */
export function parseWaitRequest(body: unknown): { readonly reference: ParsedReference; readonly waitMs: number } {
  const { reference, wait } = parseBody(WaitBody, body);
  return { reference, waitMs: limitWait(wait) };
}

/** The body of POST /v1/claims/renew. @throws Problem */
export function parseRenewRequest(body: unknown): ParsedReference {
  return parseBody(RenewBody, body).reference;
}

/** The body of POST /v1/claims/release. @throws Problem */
export function parseReleaseRequest(body: unknown): ParsedReference {
  return parseBody(ReleaseBody, body).reference;
}

/** The body of POST /v1/locks/revoke. @throws Problem */
export function parseRevokeRequest(body: unknown): Required<RevokeTarget> {
  const { key, token, reason, now = false } = parseBody(RevokeBody, body);
  return { key, token: BigInt(token), reason: cleanLabel(reason), now };
}

/** The body of POST /ui/session. @throws Problem */
export function parseSessionRequest(body: unknown): SessionRequest {
  const { data } = SessionBody.safeParse(body);
  if (data === undefined) throw invalidField("body", "malformed", "the body must have either start or credential");
  return data;
}
