/** The OpenAPI document of the HTTP port. The tests check every response against it, and that each documented status occurs. */

import type { ErrorCode } from "../../server/error-codes.ts";
import { ERROR_CODES, toHttpStatus } from "../../server/error-codes.ts";
import { createComponentSchemas } from "./schemas.ts";

/** The document for this version of the program. */
export function createOpenApiDocument(version: string): object {
  return {
    openapi: "3.1.0",
    info: {
      title: "Holdfast",
      version,
      description: "Distributed locks over HTTP. docs/reference/http.md explains the API with examples.",
      license: { name: "MIT", identifier: "MIT" },
    },
    servers: [{ url: "/" }],
    security: [{ credential: [] }, {}],
    paths: PATHS,
    components: {
      schemas: createComponentSchemas(),
      securitySchemes: {
        credential: { type: "http", scheme: "bearer", description: "Needed if the server requires credentials." },
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

/** The responses for these errors, by status. */
function problemResponses(codes: readonly ErrorCode[]): Content {
  const meanings: Record<number, string> = {};
  for (const code of codes) {
    const { status, meaning } = ERROR_CODES[code];
    if (status === null) continue;
    meanings[status] = `${meanings[status] === undefined ? "" : `${meanings[status]} `}${code}: ${meaning}.`;
  }
  return Object.fromEntries(Object.entries(meanings).map(([status, text]) => [status, problemResponse(text)]));
}

/** The errors of every operation that calls the store. */
const STORE_ERRORS: readonly ErrorCode[] = ["DRAINING", "RECLAIMING", "DISK", "STORE"];

/** An operation with a body. */
function postOperation(
  id: string,
  summary: string,
  body: string,
  example: object,
  responses: Content,
  errors: readonly ErrorCode[],
): object {
  return {
    operationId: id,
    summary,
    requestBody: { required: true, content: { "application/json": { schema: schemaRef(body), example } } },
    responses: {
      ...responses,
      ...problemResponses(["INVALID", "AUTH", "FORBIDDEN", ...errors, "MEDIA_TYPE", ...STORE_ERRORS]),
      [toHttpStatus("LIMIT", "length")]: problemResponse("LIMIT: the body is too long."),
      default: DEFAULT_RESPONSE,
    },
  };
}

/** An operation without a body. */
function getOperation(
  id: string,
  summary: string,
  responses: Content,
  errors: readonly ErrorCode[],
  extra: object = {},
): object {
  return {
    operationId: id,
    summary,
    ...extra,
    responses: { ...responses, ...problemResponses(["FORBIDDEN", ...errors]), default: DEFAULT_RESPONSE },
  };
}

const DEFAULT_RESPONSE = problemResponse("Any other error.");
const REFERENCE = { reference: "hf1.eyJwIjoiIiwiYyI6W1tdXX0.k3vq7m2a" };
const EVENT = { contentMediaType: "application/json", contentSchema: schemaRef("Event") };
const OPEN = { security: [{}] };

const PATHS = {
  "/v1/claims": {
    post: postOperation(
      "claim",
      "Acquire a lock",
      "ClaimRequest",
      { key: "invoice:42", ttl: "30s", wait: "10s", label: "nightly report" },
      {
        201: jsonResponse("The lock is held by its reference until it is released or its lease ends.", "Held"),
        202: jsonResponse(
          "The claim is still waiting. POST its reference to /v1/claims/wait within graceMs, or it leaves the queue.",
          "Waiting",
        ),
      },
      ["BUSY", "LOCK_LOST", "LIMIT", "UNSUPPORTED", "PAUSED"],
    ),
  },
  "/v1/claims/wait": {
    post: postOperation(
      "wait",
      "Continue to wait for a lock",
      "WaitRequest",
      { reference: "wait.hf1.eyJwIjoiIiwiYyI6W1tdXX0.k3vq7m2a", wait: "25s" },
      {
        201: jsonResponse("The lock is held.", "Held"),
        202: jsonResponse("The claim is still waiting.", "Waiting"),
      },
      ["LOCK_LOST"],
    ),
  },
  "/v1/claims/renew": {
    post: postOperation(
      "renew",
      "Renew a lease",
      "RenewRequest",
      REFERENCE,
      { 200: jsonResponse("The lease is renewed.", "Held") },
      ["LOCK_LOST"],
    ),
  },
  "/v1/claims/release": {
    post: postOperation(
      "release",
      "Release a lock, or withdraw a waiting claim",
      "ReleaseRequest",
      REFERENCE,
      { 200: jsonResponse("The claim was held or waiting until now, and is released.", "Released") },
      ["LOCK_LOST"],
    ),
  },
  "/v1/locks": {
    get: getOperation(
      "list",
      "List holders and waiters",
      { 200: jsonResponse("One page of claims.", "Locks") },
      ["INVALID", "AUTH", ...STORE_ERRORS],
      {
        parameters: [
          queryParameter("prefix", "Only claims with a key that begins with this prefix. Default: all.", {
            type: "string",
          }),
          queryParameter(
            "key",
            "Only the queue of this key, without a search through other keys. Not together with `prefix`.",
            { type: "string" },
          ),
          queryParameter("limit", "The largest number of claims in the page. Default: 100.", {
            type: "integer",
            minimum: 1,
            maximum: 1_000,
          }),
          queryParameter("cursor", "The cursor of the previous page.", { type: "string" }),
        ],
      },
    ),
  },
  "/v1/locks/revoke": {
    post: postOperation(
      "revoke",
      "Revoke a lock",
      "RevokeRequest",
      { key: "invoice:42", token: "1800000001000000", reason: "its host is gone" },
      { 200: jsonResponse("The lock is revoked; with `now`, it is free at once.", "Revoked") },
      ["NOT_HELD", "UNSUPPORTED"],
    ),
  },
  "/events": {
    get: getOperation(
      "events",
      "Stream events",
      { 200: textResponse("Server-sent events. The data of each one is an Event.", "text/event-stream", EVENT) },
      ["INVALID", "AUTH", "LIMIT", "DRAINING"],
      {
        parameters: [
          queryParameter("prefix", "Only events of keys that begin with this prefix. Default: all.", {
            type: "string",
          }),
          {
            name: "Last-Event-ID",
            in: "header",
            description: "Continue after this event, as far back as the server keeps events.",
            schema: { type: "string" },
          },
        ],
      },
    ),
  },
  "/metrics": {
    get: getOperation(
      "metrics",
      "Metrics for Prometheus",
      { 200: textResponse("The metrics in the text format of Prometheus.", "text/plain") },
      ["AUTH"],
    ),
  },
  "/health": {
    get: getOperation("health", "Liveness probe", { 200: jsonResponse("The server is running.", "Health") }, [], OPEN),
  },
  "/ready": {
    get: getOperation(
      "ready",
      "Readiness probe",
      { 200: jsonResponse("The server can grant locks.", "Ready") },
      ["NOT_READY"],
      OPEN,
    ),
  },
  "/v1/openapi.json": {
    get: getOperation(
      "openapi",
      "The OpenAPI document",
      { 200: { description: "The OpenAPI document.", content: { "application/json": {} } } },
      [],
      OPEN,
    ),
  },
};
