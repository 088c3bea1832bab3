/** The OpenAPI document of the HTTP port. The tests check every answer against it, and that each status in it occurs. */

import { SCHEMAS } from "./schemas.ts";

/** The document, for this version of the program. */
export function createOpenApiDocument(version: string): object {
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

const schemaRef = (name: string): object => ({ $ref: `#/components/schemas/${name}` });
const jsonResponse = (description: string, schema: string): object => ({
  description,
  content: { "application/json": { schema: schemaRef(schema) } },
});
const problemResponse = (description: string): object => ({
  description,
  content: { "application/problem+json": { schema: schemaRef("Problem") } },
});
const textResponse = (description: string, type: string, extra: object = {}): object => ({
  description,
  content: { [type]: { schema: { type: "string", ...extra } } },
});
const queryParameter = (name: string, description: string, schema: object): object => ({
  name,
  in: "query",
  description,
  schema,
});

const FORBIDDEN = problemResponse("A web page of others asks, the Host is unknown, or a right is missing.");
const AUTH = problemResponse("No valid credential was given.");
const INVALID = problemResponse("Something is missing or wrong; `field` says what.");
const STORE = problemResponse(
  "The server cannot do it now: it stops, reclaims, pauses (PAUSED), or cannot write or ask its store.",
);
const LIMIT_REACHED = problemResponse("There is no room.");
const DEFAULT_RESPONSE = { default: problemResponse("Any other refusal.") };

/** An operation that takes a body. */
function postOperation(id: string, summary: string, body: string, example: object, responses: Content): object {
  return {
    operationId: id,
    summary,
    requestBody: { required: true, content: { "application/json": { schema: schemaRef(body), example } } },
    responses: {
      ...responses,
      400: INVALID,
      401: AUTH,
      403: FORBIDDEN,
      413: problemResponse("The body is too long."),
      415: problemResponse("The body is not application/json."),
      503: STORE,
      ...DEFAULT_RESPONSE,
    },
  };
}

/** An operation that changes nothing. */
function getOperation(id: string, summary: string, responses: Content, extra: object = {}): object {
  return { operationId: id, summary, ...extra, responses: { ...responses, 403: FORBIDDEN, ...DEFAULT_RESPONSE } };
}

const LOST = problemResponse(
  "LOCK_LOST: not held by this reference. Reason: expired, released, revoked, maxHold, unknown.",
);
const UNSUPPORTED = problemResponse("UNSUPPORTED: the server's store cannot do that.");
const REFERENCE = { reference: "hf1.eyJwIjoiIiwiYyI6W1tdXX0.k3vq7m2a" };
const EVENT = { contentMediaType: "application/json", contentSchema: schemaRef("Event") };
const OPEN = { security: [{}] };

const PATHS = {
  "/v1/claims": {
    post: postOperation(
      "claim",
      "Acquires a lock, or waits for it",
      "ClaimRequest",
      { key: "invoice:42", ttl: "30s", wait: "10s", label: "nightly report" },
      {
        201: jsonResponse("Held from now on by whoever has the reference, until released or the lease ends.", "Held"),
        202: jsonResponse("Still waiting: POST the reference to /v1/claims/wait, or the place is given up.", "Waiting"),
        409: problemResponse("BUSY (only with wait 0): reason held. LOCK_LOST: the place in line was lost."),
        429: LIMIT_REACHED,
        501: UNSUPPORTED,
      },
    ),
  },
  "/v1/claims/wait": {
    post: postOperation(
      "wait",
      "Goes on waiting",
      "WaitRequest",
      { reference: "wait.hf1.eyJwIjoiIiwiYyI6W1tdXX0.k3vq7m2a", wait: "25s" },
      {
        201: jsonResponse("Held from now on.", "Held"),
        202: jsonResponse("Still waiting.", "Waiting"),
        409: LOST,
      },
    ),
  },
  "/v1/claims/renew": {
    post: postOperation("renew", "Restarts the lease", "RenewRequest", REFERENCE, {
      200: jsonResponse("Held for another lease.", "Held"),
      409: LOST,
    }),
  },
  "/v1/claims/release": {
    post: postOperation("release", "Gives a lock, or a place in line, back", "ReleaseRequest", REFERENCE, {
      200: jsonResponse("It was held or waiting until now.", "Released"),
      409: LOST,
    }),
  },
  "/v1/locks": {
    get: getOperation(
      "list",
      "Who holds and who waits",
      { 200: jsonResponse("A page.", "Locks"), 400: INVALID, 401: AUTH, 503: STORE },
      {
        parameters: [
          queryParameter("prefix", "Only claims with a key that begins so. Default: all.", { type: "string" }),
          queryParameter(
            "key",
            "Only the queue of this one key: cheap however many others there are. Not with prefix.",
            {
              type: "string",
            },
          ),
          queryParameter("limit", "At most so many. Default 100.", { type: "integer", minimum: 1, maximum: 1_000 }),
          queryParameter("cursor", "That of the page before.", { type: "string" }),
        ],
      },
    ),
  },
  "/v1/locks/revoke": {
    post: postOperation(
      "revoke",
      "Takes a lock away from its holder",
      "RevokeRequest",
      { key: "invoice:42", token: "1800000001000000", reason: "its host is gone" },
      {
        200: jsonResponse("The holder is asked to go, or was removed.", "Revoked"),
        409: problemResponse("NOT_HELD: nobody holds this key with this token."),
        501: UNSUPPORTED,
      },
    ),
  },
  "/events": {
    get: getOperation(
      "events",
      "What happens, as it happens",
      {
        200: textResponse("Server-sent events; the data of each is an Event.", "text/event-stream", EVENT),
        400: INVALID,
        401: AUTH,
        429: LIMIT_REACHED,
        503: STORE,
      },
      {
        parameters: [
          queryParameter("prefix", "Only of keys that begin so. Default: all.", { type: "string" }),
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
    get: getOperation("metrics", "Figures for Prometheus", {
      200: textResponse("In Prometheus' text format.", "text/plain"),
      401: AUTH,
    }),
  },
  "/health": { get: getOperation("health", "Does it live?", { 200: jsonResponse("It does.", "Health") }, OPEN) },
  "/ready": {
    get: getOperation(
      "ready",
      "Could it grant a lock now?",
      {
        200: jsonResponse("It could.", "Ready"),
        503: problemResponse("NOT_READY: reason reclaiming, draining or store (its state or its store is in trouble)."),
      },
      OPEN,
    ),
  },
  "/v1/openapi.json": {
    get: getOperation(
      "openapi",
      "This document",
      { 200: { description: "It.", content: { "application/json": {} } } },
      OPEN,
    ),
  },
};
