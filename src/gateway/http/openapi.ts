/** The OpenAPI document of the HTTP port. The tests check every response against it, and that each documented status occurs. */

import { OpenAPIHono } from "@hono/zod-openapi";
import { CLAIM_ROUTES } from "./claim-routes.ts";
import { EVENT_ROUTES } from "./event-stream.ts";
import { LOCK_ROUTES } from "./lock-routes.ts";
import { Duration, EventBody } from "./schemas.ts";
import { STATUS_ROUTES } from "./status-routes.ts";

/** The document for this version of the program. */
export function createOpenApiDocument(version: string): object {
  const { openAPIRegistry: registry, getOpenAPI31Document: generate } = new OpenAPIHono();
  const routes = { ...CLAIM_ROUTES, ...LOCK_ROUTES, ...EVENT_ROUTES, ...STATUS_ROUTES };
  for (const [operationId, route] of Object.entries(routes)) registry.registerPath({ operationId, ...route });
  // no bodies: the description of the first duration in a body would become that of all
  registry.register("Duration", Duration);
  registry.register("Event", EventBody);
  const description = "Needed if the server requires credentials.";
  registry.registerComponent("securitySchemes", "credential", { type: "http", scheme: "bearer", description });
  const info = {
    title: "Holdfast",
    version,
    description: "Distributed locks over HTTP. docs/reference/http.md explains the API with examples.",
    license: { name: "MIT", identifier: "MIT" },
  };
  return generate({ openapi: "3.1.0", info, servers: [{ url: "/" }], security: [{ credential: [] }, {}] });
}
