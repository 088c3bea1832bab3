/** The routes for operators' tools: liveness, readiness, metrics and the OpenAPI document. */

import { createRoute } from "@hono/zod-openapi";
import { authorize } from "../../auth/authorize.ts";
import type { ConnectionCounts } from "../../server/events/metrics.ts";
import { METRICS_TYPE } from "../../server/events/metrics.ts";
import type { Readiness } from "../../server/status.ts";
import type { GatewayService } from "../service.ts";
import type { HttpContext } from "./context.ts";
import { jsonResponse } from "./context.ts";
import { Problem } from "./problem.ts";
import type { Routes } from "./route-parts.ts";
import { OPEN, problemResponses, response } from "./route-parts.ts";
import { Health, Ready } from "./schemas.ts";

export const STATUS_ROUTES: Routes<keyof StatusRoutes> = {
  metrics: createRoute({
    method: "get",
    path: "/metrics",
    summary: "Metrics for Prometheus",
    responses: {
      200: response("The metrics in the text format of Prometheus.", { type: "string" }, "text/plain"),
      ...problemResponses("AUTH"),
    },
  }),
  // a load balancer probes these without a credential, and they say nothing about locks
  health: createRoute({
    method: "get",
    path: "/health",
    summary: "Liveness probe",
    security: OPEN,
    responses: { 200: response("The server is running.", Health), ...problemResponses() },
  }),
  ready: createRoute({
    method: "get",
    path: "/ready",
    summary: "Readiness probe",
    security: OPEN,
    responses: { 200: response("The server can grant locks.", Ready), ...problemResponses("NOT_READY") },
  }),
  openapi: createRoute({
    method: "get",
    path: "/v1/openapi.json",
    summary: "The OpenAPI document",
    security: OPEN,
    responses: { 200: response("The OpenAPI document.", {}), ...problemResponses() },
  }),
};

interface StatusOptions {
  readonly service: GatewayService;
  readonly metrics: { render(http: ConnectionCounts): string };
  readonly checkReadiness: () => Readiness;
  readonly version: string;
  /** The numbers of connections over HTTP. */
  readonly connections: ConnectionCounts;
  readonly createOpenApiDocument: (version: string) => object;
}

export class StatusRoutes {
  readonly #options: StatusOptions;
  /** Made when a client asks for it: that takes 20 ms. */
  #openApiDocument: object | undefined;

  constructor(options: StatusOptions) {
    this.#options = options;
  }

  health(c: HttpContext): Response {
    return jsonResponse(c, { status: "ok", version: this.#options.version });
  }

  /** @throws Problem NOT_READY */
  ready(c: HttpContext): Response {
    const { checkReadiness, service } = this.#options;
    const readiness = checkReadiness();
    if (readiness.ok) return jsonResponse(c, { ready: true });
    const reclaimMs = service.recoveryRemainingMs();
    const reason = service.isDraining ? "draining" : reclaimMs > 0 ? "reclaiming" : "store";
    throw new Problem("NOT_READY", reason, readiness.reason, { retryMs: reclaimMs > 0 ? reclaimMs : 1_000 });
  }

  /** @throws RequestError FORBIDDEN */
  metrics(c: HttpContext): Response {
    authorize(c.get("principal"), "inspect", [""]);
    const { metrics, connections } = this.#options;
    return c.body(metrics.render(connections), 200, { "content-type": METRICS_TYPE });
  }

  openapi(c: HttpContext): Response {
    const { createOpenApiDocument, version } = this.#options;
    this.#openApiDocument ??= createOpenApiDocument(version);
    return jsonResponse(c, this.#openApiDocument);
  }
}
