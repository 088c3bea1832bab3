/** The bodies of requests and responses as JSON Schema: the components of the OpenAPI document. */

import { ALL_ERROR_CODES, ERROR_CODES } from "../errors.ts";
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
  description: 'Milliseconds, or a string with units: 30000, "30s", "5m", "1h".',
  oneOf: [
    { type: "integer", minimum: 0 },
    {
      type: "string",
      pattern:
        "^(?=.)(\\d{1,15}(\\.\\d{1,9})?d)?(\\d{1,15}(\\.\\d{1,9})?h)?(\\d{1,15}(\\.\\d{1,9})?m)?(\\d{1,15}(\\.\\d{1,9})?s)?(\\d{1,15}(\\.\\d{1,9})?ms)?$",
    },
  ],
};
const KEY = stringSchema("The name of a lock: 1 to 512 bytes of UTF-8 without control characters, compared bytewise.", {
  minLength: 1,
  maxLength: 512,
});
const TAG = stringSchema("The public name of the claim. It gives no right to the claim.", {
  pattern: "^[a-z2-7]{10}$",
});
const TOKEN = stringSchema("The fencing token, a decimal number; null if the store has none.", {
  type: ["string", "null"],
  pattern: "^\\d{1,19}$",
});
const REFERENCE = stringSchema(
  "Identifies the held claim; with it any process can renew and release the lock. A secret. `lock.detach()` returns the same.",
  {
    pattern: "^hf1\\.[\\w-]+\\.[\\w-]{8}$",
  },
);
const WAITING = stringSchema(
  "Identifies the waiting claim; with it any process can continue to wait or withdraw the claim. A secret.",
  { pattern: "^wait\\.hf1\\.[\\w-]+\\.[\\w-]{8}$" },
);
const CLAIM_PROPERTIES = { tag: TAG, keys: arraySchema(KEY, { minItems: 1 }) };

/** The schemas by name. */
export const SCHEMAS: Readonly<Record<string, object>> = {
  Duration: DURATION,
  ClaimRequest: objectSchema(
    [],
    {
      key: KEY,
      keys: arraySchema(KEY, {
        minItems: 1,
        maxItems: 128,
        description: "Several keys, locked together or not at all.",
      }),
      mode: stringSchema("Default: semaphore if `limit` is given, otherwise exclusive.", {
        enum: ["exclusive", "shared", "semaphore"],
      }),
      permits: integerSchema("For a semaphore: the number of permits to take. Default: 1.", { minimum: 1 }),
      limit: integerSchema("For a semaphore: the number of permits that may be taken at once.", {
        minimum: 1,
        maximum: 1_073_741_823,
      }),
      ttl: {
        ...schemaRef("Duration"),
        description: "The length of the lease. The lock ends with the lease unless it is renewed. Default: 30 s.",
      },
      wait: {
        ...schemaRef("Duration"),
        description: "The longest wait of this request, at most 25 s. 0: try once. Default: 25 s.",
      },
      label: stringSchema("A public description of the holder. Default: the address of the client."),
    },
    { oneOf: [{ required: ["key"] }, { required: ["keys"] }] },
  ),
  WaitRequest: objectSchema(["reference"], { reference: WAITING, wait: schemaRef("Duration") }),
  RenewRequest: objectSchema(["reference"], { reference: REFERENCE }),
  ReleaseRequest: objectSchema(["reference"], { reference: { anyOf: [REFERENCE, WAITING] } }),
  RevokeRequest: objectSchema(["key", "token", "reason"], {
    key: KEY,
    token: stringSchema("The token of the holder. A holder with another token is not affected.", {
      pattern: "^\\d{1,19}$",
    }),
    reason: stringSchema("The reason, for the log and the events of the key.", { minLength: 1, maxLength: 256 }),
    now: {
      type: "boolean",
      description:
        "Free the key at once, although its holder may still be working. Default: false; the key is free when its holder has released it or its lease has ended.",
    },
  }),
  Held: objectSchema(["state", "tag", "keys", "reference", "token", "ttlMs"], {
    state: { const: "held" },
    ...CLAIM_PROPERTIES,
    reference: REFERENCE,
    token: TOKEN,
    ttlMs: integerSchema("What is left of the lease at the time of the response, in milliseconds."),
  }),
  Waiting: objectSchema(["state", "tag", "keys", "reference", "graceMs"], {
    state: { const: "waiting" },
    ...CLAIM_PROPERTIES,
    reference: WAITING,
    graceMs: integerSchema(
      "How long the claim stays in the queue without a request that waits for it, in milliseconds.",
    ),
    paused: {
      ...objectSchema(["reason", "remainingMs"], {
        reason: { enum: ["recovery", "gracePeriod"] },
        remainingMs: integerSchema("The approximate rest of the pause, in milliseconds."),
      }),
      description: "The store grants no new locks: it is recovering after a restart, or may have lost data.",
    },
  }),
  Released: objectSchema(["state", "tag", "keys"], { state: { const: "released" }, ...CLAIM_PROPERTIES }),
  Revoked: objectSchema(["state", "key", "token"], {
    state: { enum: ["revoked", "removed"] },
    key: KEY,
    token: stringSchema("The token of the revoked lock.", { pattern: "^\\d{1,19}$" }),
  }),
  Locks: objectSchema(["locks", "cursor"], {
    locks: arraySchema(schemaRef("Lock")),
    cursor: stringSchema("The cursor for the next page; null on the last page.", { type: ["string", "null"] }),
  }),
  Lock: objectSchema(["tag", "state", "holds", "token", "ttlMs", "label", "ageMs"], {
    tag: TAG,
    state: { enum: ["held", "waiting"] },
    holds: arraySchema(schemaRef("Hold"), { minItems: 1 }),
    token: TOKEN,
    ttlMs: integerSchema("What is left of the lease, in milliseconds; null for a session claim.", {
      type: ["integer", "null"],
    }),
    label: stringSchema("The public description of its holder or waiter."),
    ageMs: integerSchema("The age of the claim in milliseconds."),
  }),
  Hold: objectSchema(["key", "mode"], {
    key: KEY,
    mode: { enum: ["exclusive", "shared", "semaphore"] },
    permits: integerSchema("For a semaphore: the number of permits that the claim takes."),
    limit: integerSchema("For a semaphore: the number of permits that may be taken at once."),
  }),
  Health: objectSchema(["status", "version"], {
    status: { const: "ok" },
    version: stringSchema("The version of the server."),
  }),
  Ready: objectSchema(["ready"], { ready: { const: true } }),
  Problem: objectSchema(["type", "title", "status", "code", "reason", "detail"], {
    type: { const: "about:blank" },
    title: stringSchema("The name of the HTTP status."),
    status: integerSchema("The HTTP status."),
    code: stringSchema("The kind of the error, for programs.", {
      enum: ALL_ERROR_CODES.filter((code) => ERROR_CODES[code].status !== null),
    }),
    reason: stringSchema("The reason in one word, for programs.", { pattern: "^[a-zA-Z]+$" }),
    detail: stringSchema("A message for people."),
    field: stringSchema("The invalid field, parameter or header."),
    holder: stringSchema("With BUSY: the label of a holder, if the caller may inspect the key."),
    retryMs: integerSchema("When to try again, in milliseconds; also in the header Retry-After, in seconds."),
  }),
  Event: objectSchema(["at", "kind", "keys", "tag", "label", "token", "by"], {
    at: stringSchema("The time, as ISO 8601."),
    kind: stringSchema("The kind of the event.", { enum: EVENT_KINDS }),
    keys: arraySchema(KEY),
    tag: TAG,
    label: stringSchema("The public description of the holder or waiter."),
    token: TOKEN,
    by: stringSchema("The account of the claim; empty if the server requires no credentials."),
    operator: stringSchema("For a revocation: the account of the operator."),
    reason: stringSchema("For a revocation: its reason."),
  }),
};
