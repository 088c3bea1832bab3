/** What goes in and out over HTTP, as JSON Schema: the components of the OpenAPI document. */

import { KINDS } from "../ring.ts";

const text = (description: string, more: object = {}): object => ({ type: "string", description, ...more });
const count = (description: string, more: object = {}): object => ({
  type: "integer",
  minimum: 0,
  description,
  ...more,
});
const object = (required: readonly string[], properties: object, more: object = {}): object => ({
  type: "object",
  required,
  properties,
  ...more,
});
const ref = (name: string): object => ({ $ref: `#/components/schemas/${name}` });
const list = (items: object, more: object = {}): object => ({ type: "array", items, ...more });

const DURATION = {
  description: 'Milliseconds, or a text with a unit: 30000, "30s", "5m", "1h".',
  oneOf: [
    { type: "integer", minimum: 0 },
    {
      type: "string",
      pattern:
        "^(?=.)(\\d{1,15}(\\.\\d{1,9})?d)?(\\d{1,15}(\\.\\d{1,9})?h)?(\\d{1,15}(\\.\\d{1,9})?m)?(\\d{1,15}(\\.\\d{1,9})?s)?(\\d{1,15}(\\.\\d{1,9})?ms)?$",
    },
  ],
};
const KEY = text("What is locked: 1 to 512 bytes of UTF-8 without control characters, compared byte by byte.", {
  minLength: 1,
  maxLength: 512,
});
const TAG = text("Names the claim for people; nothing can be done with it.", { pattern: "^[a-z2-7]{10}$" });
const TOKEN = text("The fencing token, a decimal number; null if the store has none.", {
  type: ["string", "null"],
  pattern: "^\\d{1,19}$",
});
const REFERENCE = text("Whoever has it holds the lock: a secret. The same as `lock.detach()` gives.", {
  pattern: "^hf1\\.[\\w-]+\\.[\\w-]{8}$",
});
const WAITING = text("Whoever has it can wait for the lock and give up its place: a secret.", {
  pattern: "^wait\\.hf1\\.[\\w-]+\\.[\\w-]{8}$",
});
const CLAIMED = { tag: TAG, keys: list(KEY, { minItems: 1 }) };

/** By name. */
export const SCHEMAS: Readonly<Record<string, object>> = {
  Duration: DURATION,
  ClaimRequest: object(
    [],
    {
      key: KEY,
      keys: list(KEY, { minItems: 1, maxItems: 128, description: "Several keys, held together or not at all." }),
      mode: text("Default: exclusive, or semaphore where a limit is given.", {
        enum: ["exclusive", "shared", "semaphore"],
      }),
      permits: count("Of a semaphore: how many permits to take. Default 1.", { minimum: 1 }),
      limit: count("Of a semaphore: how many permits may be out at once.", { minimum: 1, maximum: 1_073_741_823 }),
      ttl: { ...ref("Duration"), description: "The lease: the lock ends unless it is renewed before. Default 30 s." },
      wait: { ...ref("Duration"), description: "How long to wait, at most 25 s. Default 25 s. 0: ask once." },
      label: text("Shown to people who look who holds the lock. Default: the address of the client."),
    },
    { oneOf: [{ required: ["key"] }, { required: ["keys"] }] },
  ),
  WaitRequest: object(["reference"], { reference: WAITING, wait: ref("Duration") }),
  RenewRequest: object(["reference"], { reference: REFERENCE }),
  ReleaseRequest: object(["reference"], { reference: { anyOf: [REFERENCE, WAITING] } }),
  RevokeRequest: object(["key", "token", "reason"], {
    key: KEY,
    token: text("The token that the holder has: another holder is left alone.", { pattern: "^\\d{1,19}$" }),
    reason: text("Why; it is logged, and shown with the key's events.", { minLength: 1, maxLength: 256 }),
    now: {
      type: "boolean",
      description:
        "Free the key at once, although its holder may still be at work. Default false: the holder is asked.",
    },
  }),
  Held: object(["state", "tag", "keys", "reference", "token", "ttlMs"], {
    state: { const: "held" },
    ...CLAIMED,
    reference: REFERENCE,
    token: TOKEN,
    ttlMs: count("What is left of the lease, in milliseconds, when this was answered."),
  }),
  Waiting: object(["state", "tag", "keys", "reference", "graceMs"], {
    state: { const: "waiting" },
    ...CLAIMED,
    reference: WAITING,
    graceMs: count("How long the place in line is kept until somebody waits for it again, in milliseconds."),
    paused: {
      ...object(["reason", "remainingMs"], {
        reason: { enum: ["recovery", "gracePeriod"] },
        remainingMs: count("About how long it lasts still, in milliseconds."),
      }),
      description: "The store grants nothing new to anyone: after a restart, or since it may have lost data.",
    },
  }),
  Released: object(["state", "tag", "keys"], { state: { const: "released" }, ...CLAIMED }),
  Revoked: object(["state", "key", "token"], {
    state: { enum: ["revoked", "removed"] },
    key: KEY,
    token: text("The token that was taken away.", { pattern: "^\\d{1,19}$" }),
  }),
  Locks: object(["locks", "cursor"], {
    locks: list(ref("Lock")),
    cursor: text("For the next page; null if this was the last one.", { type: ["string", "null"] }),
  }),
  Lock: object(["tag", "state", "holds", "token", "ttlMs", "label", "ageMs"], {
    tag: TAG,
    state: { enum: ["held", "waiting"] },
    holds: list(ref("Hold"), { minItems: 1 }),
    token: TOKEN,
    ttlMs: count("What is left of the lease; null if it ends with a session.", { type: ["integer", "null"] }),
    label: text("What its holder calls itself."),
    ageMs: count("How long ago it was placed, in milliseconds."),
  }),
  Hold: object(["key", "mode"], {
    key: KEY,
    mode: { enum: ["exclusive", "shared", "semaphore"] },
    permits: count("Of a semaphore."),
    limit: count("Of a semaphore."),
  }),
  Health: object(["status", "version"], { status: { const: "ok" }, version: text("Of the server.") }),
  Ready: object(["ready"], { ready: { const: true } }),
  Problem: object(["type", "title", "status", "code", "reason", "detail"], {
    type: { const: "about:blank" },
    title: text("The status in words."),
    status: count("The HTTP status."),
    code: text("What it is, for programs.", {
      enum: [
        "AUTH",
        "BUSY",
        "DISK",
        "DRAINING",
        "FATAL",
        "FLOOR",
        "FORBIDDEN",
        "INTERNAL",
        "INVALID",
        "LIMIT",
        "LOCK_LOST",
        "MEDIA_TYPE",
        "METHOD",
        "NOT_FOUND",
        "NOT_HELD",
        "NOT_READY",
        "PAUSED",
        "RECLAIMING",
        "STORE",
        "TIMEOUT",
        "UNSUPPORTED",
      ],
    }),
    reason: text("Why, in one word, for programs.", { pattern: "^[a-zA-Z]+$" }),
    detail: text("For people."),
    field: text("The field, parameter or header that is wrong."),
    holder: text("Of BUSY: the label of a holder, if the caller may inspect the key."),
    retryMs: count("When asking again makes sense; also in the header Retry-After, in seconds."),
  }),
  Event: object(["at", "kind", "keys", "tag", "label", "token", "by"], {
    at: text("When, as ISO 8601."),
    kind: text("What happened.", { enum: KINDS }),
    keys: list(KEY),
    tag: TAG,
    label: text("What the holder calls itself."),
    token: TOKEN,
    by: text("The account that placed the claim; empty if the server asks for no credentials."),
    operator: text("Of a forced release: whose it was."),
    reason: text("Of a forced release: why."),
  }),
};
