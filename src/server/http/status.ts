/** What operators' tools ask: is it alive, can it grant, what does it count, how is it spoken to. */

import { METRICS_TYPE } from "../metrics.ts";
import type { Call, Reply, Route } from "./call.ts";
import { json } from "./call.ts";
import type { HttpOptions } from "./http.ts";
import { document } from "./openapi.ts";
import { Problem } from "./problem.ts";

export function statusRoutes({ hub, ready, metrics, version }: HttpOptions, isDraining: () => boolean): Route[] {
  const api = json(200, document(version));

  function readiness(): Reply {
    const now = ready();
    if (now.ok) return json(200, { ready: true });
    const reclaimMs = hub.backend.reclaimMs();
    const reason = isDraining() ? "draining" : reclaimMs > 0 ? "reclaiming" : "store";
    const why = now.why ?? "the server can grant nothing now";
    throw new Problem(503, "NOT_READY", reason, why, { retryMs: reclaimMs > 0 ? reclaimMs : 1_000 });
  }

  function figures({ principal }: Call): Reply {
    if (!principal.may("inspect", "")) {
      throw new Problem(403, "FORBIDDEN", "rights", "this credential may not inspect every key");
    }
    return { status: 200, type: METRICS_TYPE, text: metrics.text() };
  }

  return [
    { method: "GET", path: "/health", open: true, handle: () => json(200, { status: "ok", version }) },
    { method: "GET", path: "/ready", open: true, handle: readiness },
    { method: "GET", path: "/metrics", handle: figures },
    { method: "GET", path: "/v1/openapi.json", open: true, handle: () => api },
  ];
}
