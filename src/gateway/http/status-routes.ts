/** The routes for operators' tools: liveness, readiness, metrics and the OpenAPI document. */

import { authorize } from "../../auth/authorize.ts";
import type { ConnectionCounts } from "../../server/events/metrics.ts";
import { METRICS_TYPE } from "../../server/events/metrics.ts";
import type { Readiness } from "../../server/status.ts";
import type { GatewayService } from "../service.ts";
import type { HttpContext } from "./context.ts";
import { jsonResponse } from "./context.ts";
import { createOpenApiDocument } from "./openapi.ts";
import { Problem } from "./problem.ts";

interface StatusOptions {
  readonly service: GatewayService;
  readonly metrics: { render(http: ConnectionCounts): string };
  readonly checkReadiness: () => Readiness;
  readonly version: string;
  /** The numbers of connections over HTTP. */
  readonly connections: ConnectionCounts;
}

export class StatusRoutes {
  readonly #options: StatusOptions;
  readonly #openApiDocument: object;

  constructor(options: StatusOptions) {
    this.#options = options;
    this.#openApiDocument = createOpenApiDocument(options.version);
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

  openApi(c: HttpContext): Response {
    return jsonResponse(c, this.#openApiDocument);
  }
}
