/** What the declarations of routes have in common. app.ts serves what they declare, and openapi.ts documents it. */

import type { RouteConfig } from "@hono/zod-openapi";
import type { ZodType } from "zod";
import type { ErrorCode } from "../../server/error-codes.ts";
import { ERROR_CODES, toHttpStatus } from "../../server/error-codes.ts";
import type { HttpContext } from "./context.ts";
import { ProblemBody } from "./schemas.ts";

/** The routes of a group, by the names of their operations, which are those of their handlers. */
export type Routes<Name extends string> = Readonly<Record<Name, RouteConfig>>;
export type Handlers<Name extends string> = Readonly<Record<Name, (c: HttpContext) => Response | Promise<Response>>>;

type Responses = RouteConfig["responses"];

/** `security` of a route that needs no credential, and is served without authentication. */
export const OPEN: Record<string, string[]>[] = [{}];

/** The errors of every operation that calls the store. */
export const STORE_ERRORS: readonly ErrorCode[] = ["DRAINING", "RECLAIMING", "DISK", "STORE"];

/** A required body. */
export function jsonRequest(schema: ZodType, example: object): NonNullable<RouteConfig["request"]> {
  return { body: { required: true, content: { "application/json": { schema, example } } } };
}

/** A response with a body of this media type. */
export function response(description: string, schema: ZodType | object, type = "application/json"): Responses[string] {
  return { description, content: { [type]: { schema } } };
}

const problemResponse = (description: string): Responses[string] =>
  response(description, ProblemBody, "application/problem+json");

/** The responses for these errors, by status, and for those of every operation. */
export function problemResponses(...codes: ErrorCode[]): Responses {
  const texts = new Map<number, string>();
  for (const code of ["FORBIDDEN" as const, ...codes]) {
    const { status, meaning } = ERROR_CODES[code];
    if (status !== null) texts.set(status, `${texts.get(status) ?? ""} ${code}: ${meaning}.`.trimStart());
  }
  const responses = [...texts].map(([status, text]) => [status, problemResponse(text)]);
  return { ...Object.fromEntries(responses), default: problemResponse("Any other error.") };
}

/** The same for an operation with a body. */
export function postProblemResponses(...codes: ErrorCode[]): Responses {
  return {
    ...problemResponses("INVALID", "AUTH", ...codes, "MEDIA_TYPE", ...STORE_ERRORS),
    [toHttpStatus("LIMIT", "length")]: problemResponse("LIMIT: the body is too long."),
  };
}
