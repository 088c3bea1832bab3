/** The OpenAPI document of the HTTP port. The tests check every answer against it, and that each status in it occurs. */

import { SCHEMAS } from "./schemas.ts";

/** The document, for this version of the program. */
export function document(version: string): object {
  return {
    openapi: "3.1.0",
    info: {
      title: "Holdfast",
      version,
      description: "Locks over HTTP. docs/reference/http.md explains them by examples.",
      license: { name: "MIT", identifier: "MIT" },
    },
    servers: [{ url: "/" }],
    security: [{ credential: [] }, {}],
    paths: PATHS,
    components: {
      schemas: SCHEMAS,
      securitySchemes: {
        credential: { type: "http", scheme: "bearer", description: "Where the server asks for credentials." },
      },
    },
  };
}

type Content = Readonly<Record<string, object>>;

const ref = (name: string): object => ({ $ref: `#/components/schemas/${name}` });
const answer = (description: string, schema: string): object => ({
  description,
  content: { "application/json": { schema: ref(schema) } },
});
const problem = (description: string): object => ({
  description,
  content: { "application/problem+json": { schema: ref("Problem") } },
});
const textual = (description: string, type: string, more: object = {}): object => ({
  description,
  content: { [type]: { schema: { type: "string", ...more } } },
});
const query = (name: string, description: string, schema: object): object => ({
  name,
  in: "query",
  description,
  schema,
});

const FORBIDDEN = problem("A web page of others asks, the Host is unknown, or a right is missing.");
const AUTH = problem("No valid credential was given.");
const INVALID = problem("Something is missing or wrong; `field` says what.");
const STORE = problem(
  "The server cannot do it now: it stops, reclaims, pauses (PAUSED), or cannot write or ask its store.",
);
const FULL = problem("There is no room.");
const OTHER = { default: problem("Any other refusal.") };

/** An operation that takes a body. */
function posting(id: string, summary: string, body: string, example: object, answers: Content): object {
  return {
    operationId: id,
    summary,
    requestBody: { required: true, content: { "application/json": { schema: ref(body), example } } },
    responses: {
      ...answers,
      400: INVALID,
      401: AUTH,
      403: FORBIDDEN,
      413: problem("The body is too long."),
      415: problem("The body is not application/json."),
      503: STORE,
      ...OTHER,
    },
  };
}

/** An operation that changes nothing. */
function reading(id: string, summary: string, answers: Content, more: object = {}): object {
  return { operationId: id, summary, ...more, responses: { ...answers, 403: FORBIDDEN, ...OTHER } };
}

const LOST = problem("LOCK_LOST: not held by this reference. Reason: expired, released, revoked, maxHold, unknown.");
const UNSUPPORTED = problem("UNSUPPORTED: the server's store cannot do that.");
const REFERENCE = { reference: "hf1.eyJwIjoiIiwiYyI6W1tdXX0.k3vq7m2a" };
const EVENT = { contentMediaType: "application/json", contentSchema: ref("Event") };
const OPEN = { security: [{}] };

const PATHS = {
  "/v1/claims": {
    post: posting(
      "claim",
      "Acquires a lock, or waits for it",
      "ClaimRequest",
      { key: "invoice:42", ttl: "30s", wait: "10s", label: "nightly report" },
      {
        201: answer("Held from now on by whoever has the reference, until released or the lease ends.", "Held"),
        202: answer("Still waiting: POST the reference to /v1/claims/wait, or the place is given up.", "Waiting"),
        409: problem("BUSY (only with wait 0): reason held. LOCK_LOST: the place in line was lost."),
        429: FULL,
        501: UNSUPPORTED,
      },
    ),
  },
  "/v1/claims/wait": {
    post: posting(
      "wait",
      "Goes on waiting",
      "WaitRequest",
      { reference: "wait.hf1.eyJwIjoiIiwiYyI6W1tdXX0.k3vq7m2a", wait: "25s" },
      {
        201: answer("Held from now on.", "Held"),
        202: answer("Still waiting.", "Waiting"),
        409: LOST,
      },
    ),
  },
  "/v1/claims/renew": {
    post: posting("renew", "Restarts the lease", "RenewRequest", REFERENCE, {
      200: answer("Held for another lease.", "Held"),
      409: LOST,
    }),
  },
  "/v1/claims/release": {
    post: posting("release", "Gives a lock, or a place in line, back", "ReleaseRequest", REFERENCE, {
      200: answer("It was held or waiting until now.", "Released"),
      409: LOST,
    }),
  },
  "/v1/locks": {
    get: reading(
      "list",
      "Who holds and who waits",
      { 200: answer("A page.", "Locks"), 400: INVALID, 401: AUTH, 503: STORE },
      {
        parameters: [
          query("prefix", "Only claims with a key that begins so. Default: all.", { type: "string" }),
          query("key", "Only the queue of this one key: cheap however many others there are. Not with prefix.", {
            type: "string",
          }),
          query("limit", "At most so many. Default 100.", { type: "integer", minimum: 1, maximum: 1_000 }),
          query("cursor", "That of the page before.", { type: "string" }),
        ],
      },
    ),
  },
  "/v1/locks/revoke": {
    post: posting(
      "revoke",
      "Takes a lock away from its holder",
      "RevokeRequest",
      { key: "invoice:42", token: "1800000001000000", reason: "its host is gone" },
      {
        200: answer("The holder is asked to go, or was removed.", "Revoked"),
        409: problem("NOT_HELD: nobody holds this key with this token."),
        501: UNSUPPORTED,
      },
    ),
  },
  "/events": {
    get: reading(
      "events",
      "What happens, as it happens",
      {
        200: textual("Server-sent events; the data of each is an Event.", "text/event-stream", EVENT),
        400: INVALID,
        401: AUTH,
        429: FULL,
        503: STORE,
      },
      {
        parameters: [
          query("prefix", "Only of keys that begin so. Default: all.", { type: "string" }),
          {
            name: "Last-Event-ID",
            in: "header",
            description: "Go on behind this event, as far as events are kept.",
            schema: { type: "string" },
          },
        ],
      },
    ),
  },
  "/metrics": {
    get: reading("metrics", "Figures for Prometheus", {
      200: textual("In Prometheus' text format.", "text/plain"),
      401: AUTH,
    }),
  },
  "/health": { get: reading("health", "Does it live?", { 200: answer("It does.", "Health") }, OPEN) },
  "/ready": {
    get: reading(
      "ready",
      "Could it grant a lock now?",
      {
        200: answer("It could.", "Ready"),
        503: problem("NOT_READY: reason reclaiming, draining or store (its state or its store is in trouble)."),
      },
      OPEN,
    ),
  },
  "/v1/openapi.json": {
    get: reading(
      "openapi",
      "This document",
      { 200: { description: "It.", content: { "application/json": {} } } },
      OPEN,
    ),
  },
};
