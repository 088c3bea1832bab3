/** What goes in and out over HTTP, as JSON Schema: the components of the OpenAPI document. */

import { EVENT_KINDS } from "../events/event-ring.ts";

const stringSchema = (description: string, extra: object = {}): object => ({ type: "string", description, ...extra });
const integerSchema = (description: string, extra: object = {}): object => ({
  type: "integer",
  minimum: 0,
  description,
  ...extra,
});
const objectSchema = (required: readonly string[], properties: object, extra: object = {}): object => ({
  type: "object",
  required,
  properties,
  ...extra,
});
const schemaRef = (name: string): object => ({ $ref: `#/components/schemas/${name}` });
const arraySchema = (items: object, extra: object = {}): object => ({ type: "array", items, ...extra });

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
const KEY = stringSchema("What is locked: 1 to 512 bytes of UTF-8 without control characters, compared byte by byte.", {
  minLength: 1,
  maxLength: 512,
});
const TAG = stringSchema("Names the claim for people; nothing can be done with it.", { pattern: "^[a-z2-7]{10}$" });
const TOKEN = stringSchema("The fencing token, a decimal number; null if the store has none.", {
  type: ["string", "null"],
  pattern: "^\\d{1,19}$",
});
const REFERENCE = stringSchema("Whoever has it holds the lock: a secret. The same as `lock.detach()` gives.", {
  pattern: "^hf1\\.[\\w-]+\\.[\\w-]{8}$",
});
const WAITING = stringSchema("Whoever has it can wait for the lock and give up its place: a secret.", {
  pattern: "^wait\\.hf1\\.[\\w-]+\\.[\\w-]{8}$",
});
const CLAIM_PROPERTIES = { tag: TAG, keys: arraySchema(KEY, { minItems: 1 }) };

/** By name. */
export const SCHEMAS: Readonly<Record<string, object>> = {
  Duration: DURATION,
  ClaimRequest: objectSchema(
    [],
    {
      key: KEY,
      keys: arraySchema(KEY, { minItems: 1, maxItems: 128, description: "Several keys, held together or not at all." }),
      mode: stringSchema("Default: exclusive, or semaphore where a limit is given.", {
        enum: ["exclusive", "shared", "semaphore"],
      }),
      permits: integerSchema("Of a semaphore: how many permits to take. Default 1.", { minimum: 1 }),
      limit: integerSchema("Of a semaphore: how many permits may be out at once.", {
        minimum: 1,
        maximum: 1_073_741_823,
      }),
      ttl: {
        ...schemaRef("Duration"),
        description: "The lease: the lock ends unless it is renewed before. Default 30 s.",
      },
      wait: { ...schemaRef("Duration"), description: "How long to wait, at most 25 s. Default 25 s. 0: ask once." },
      label: stringSchema("Shown to people who look who holds the lock. Default: the address of the client."),
    },
    { oneOf: [{ required: ["key"] }, { required: ["keys"] }] },
  ),
  WaitRequest: objectSchema(["reference"], { reference: WAITING, wait: schemaRef("Duration") }),
  RenewRequest: objectSchema(["reference"], { reference: REFERENCE }),
  ReleaseRequest: objectSchema(["reference"], { reference: { anyOf: [REFERENCE, WAITING] } }),
  RevokeRequest: objectSchema(["key", "token", "reason"], {
    key: KEY,
    token: stringSchema("The token that the holder has: another holder is left alone.", { pattern: "^\\d{1,19}$" }),
    reason: stringSchema("Why; it is logged, and shown with the key's events.", { minLength: 1, maxLength: 256 }),
    now: {
      type: "boolean",
      description:
        "Free the key at once, although its holder may still be at work. Default false: the holder is asked.",
    },
  }),
  Held: objectSchema(["state", "tag", "keys", "reference", "token", "ttlMs"], {
    state: { const: "held" },
    ...CLAIM_PROPERTIES,
    reference: REFERENCE,
    token: TOKEN,
    ttlMs: integerSchema("What is left of the lease, in milliseconds, when this was answered."),
  }),
  Waiting: objectSchema(["state", "tag", "keys", "reference", "graceMs"], {
    state: { const: "waiting" },
    ...CLAIM_PROPERTIES,
    reference: WAITING,
    graceMs: integerSchema("How long the place in line is kept until somebody waits for it again, in milliseconds."),
    paused: {
      ...objectSchema(["reason", "remainingMs"], {
        reason: { enum: ["recovery", "gracePeriod"] },
        remainingMs: integerSchema("About how long it lasts still, in milliseconds."),
      }),
      description: "The store grants nothing new to anyone: after a restart, or since it may have lost data.",
    },
  }),
  Released: objectSchema(["state", "tag", "keys"], { state: { const: "released" }, ...CLAIM_PROPERTIES }),
  Revoked: objectSchema(["state", "key", "token"], {
    state: { enum: ["revoked", "removed"] },
    key: KEY,
    token: stringSchema("The token that was taken away.", { pattern: "^\\d{1,19}$" }),
  }),
  Locks: objectSchema(["locks", "cursor"], {
    locks: arraySchema(schemaRef("Lock")),
    cursor: stringSchema("For the next page; null if this was the last one.", { type: ["string", "null"] }),
  }),
  Lock: objectSchema(["tag", "state", "holds", "token", "ttlMs", "label", "ageMs"], {
    tag: TAG,
    state: { enum: ["held", "waiting"] },
    holds: arraySchema(schemaRef("Hold"), { minItems: 1 }),
    token: TOKEN,
    ttlMs: integerSchema("What is left of the lease; null if it ends with a session.", { type: ["integer", "null"] }),
    label: stringSchema("What its holder calls itself."),
    ageMs: integerSchema("How long ago it was placed, in milliseconds."),
  }),
  Hold: objectSchema(["key", "mode"], {
    key: KEY,
    mode: { enum: ["exclusive", "shared", "semaphore"] },
    permits: integerSchema("Of a semaphore."),
    limit: integerSchema("Of a semaphore."),
  }),
  Health: objectSchema(["status", "version"], { status: { const: "ok" }, version: stringSchema("Of the server.") }),
  Ready: objectSchema(["ready"], { ready: { const: true } }),
  Problem: objectSchema(["type", "title", "status", "code", "reason", "detail"], {
    type: { const: "about:blank" },
    title: stringSchema("The status in words."),
    status: integerSchema("The HTTP status."),
    code: stringSchema("What it is, for programs.", {
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
    reason: stringSchema("Why, in one word, for programs.", { pattern: "^[a-zA-Z]+$" }),
    detail: stringSchema("For people."),
    field: stringSchema("The field, parameter or header that is wrong."),
    holder: stringSchema("Of BUSY: the label of a holder, if the caller may inspect the key."),
    retryMs: integerSchema("When asking again makes sense; also in the header Retry-After, in seconds."),
  }),
  Event: objectSchema(["at", "kind", "keys", "tag", "label", "token", "by"], {
    at: stringSchema("When, as ISO 8601."),
    kind: stringSchema("What happened.", { enum: EVENT_KINDS }),
    keys: arraySchema(KEY),
    tag: TAG,
    label: stringSchema("What the holder calls itself."),
    token: TOKEN,
    by: stringSchema("The account that placed the claim; empty if the server asks for no credentials."),
    operator: stringSchema("Of a forced release: whose it was."),
    reason: stringSchema("Of a forced release: why."),
  }),
};
