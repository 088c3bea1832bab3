/** The routes for operators' tools: liveness, readiness, metrics and the OpenAPI document. */

import { authorize } from "../auth/authorize.ts";
import type { ConnectionCounts } from "../events/metrics.ts";
import { METRICS_TYPE } from "../events/metrics.ts";
import type { LockService } from "../service.ts";
import { createOpenApiDocument } from "./openapi.ts";
import { Problem } from "./problem.ts";
import type { HttpReply, RequestContext, Route } from "./request-context.ts";
import { jsonReply } from "./request-context.ts";

/** The parts of the server whose state these routes show. */
export interface StatusSources {
  /** The service whose locks the port serves. */
  readonly service: LockService;
  /** The source of /metrics. */
  readonly metrics: { recordRefusal(code: string): void; render(http: ConnectionCounts): string };
  /** For /ready: can the server grant a lock now, and if not, why? */
  readonly checkReadiness: () => { readonly ok: boolean; readonly reason?: string };
  /** The version of this program. */
  readonly version: string;
}

export function statusRoutes(
  { service, checkReadiness, metrics, version }: StatusSources,
  isDraining: () => boolean,
  connectionCounts: () => ConnectionCounts,
): Route[] {
  const openApiReply = jsonReply(200, createOpenApiDocument(version));

  function getReadiness(): HttpReply {
    const readiness = checkReadiness();
    if (readiness.ok) return jsonReply(200, { ready: true });
    const reclaimMs = service.backend.recoveryRemainingMs();
    const reason = isDraining() ? "draining" : reclaimMs > 0 ? "reclaiming" : "store";
    const message = readiness.reason ?? "the server cannot grant locks now";
    throw new Problem("NOT_READY", reason, message, { retryMs: reclaimMs > 0 ? reclaimMs : 1_000 });
  }

  function getMetrics({ principal }: RequestContext): HttpReply {
    authorize(principal, "inspect", [""]);
    return { status: 200, type: METRICS_TYPE, text: metrics.render(connectionCounts()) };
  }

  return [
    { method: "GET", path: "/health", isPublic: true, handle: () => jsonReply(200, { status: "ok", version }) },
    { method: "GET", path: "/ready", isPublic: true, handle: getReadiness },
    { method: "GET", path: "/metrics", handle: getMetrics },
    { method: "GET", path: "/v1/openapi.json", isPublic: true, handle: () => openApiReply },
  ];
}
