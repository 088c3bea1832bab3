/**
 * The stream of the events of claims. A reader that reconnects sends the id of its last event, and receives the events
 * after it as far as the server still has them.
 */

import { createRoute, z } from "@hono/zod-openapi";
import { visibleKeys } from "../../auth/authorize.ts";
import type { EventBatch, EventLog, RecordedEvent } from "../../server/events/event-log.ts";
import { drainingError } from "../../server/request-error.ts";
import type { GatewayService } from "../service.ts";
import type { HttpContext } from "./context.ts";
import { parsePrefix, parseQuery } from "./context.ts";
import { invalidField } from "./problem.ts";
import type { Routes } from "./route-parts.ts";
import { problemResponses, response } from "./route-parts.ts";
import type { SentEvents } from "./sent-events.ts";

const EVENT_DATA = {
  type: "string",
  contentMediaType: "application/json",
  contentSchema: { $ref: "#/components/schemas/Event" },
};
const EventsQuery = z.object({
  prefix: z.string().optional().describe("Only events of keys that begin with this prefix. Default: all."),
});

export const EVENT_ROUTES: Routes<"events"> = {
  events: createRoute({
    method: "get",
    path: "/events",
    summary: "Stream events",
    request: {
      query: EventsQuery,
      headers: z.object({
        "Last-Event-ID": z
          .string()
          .optional()
          .describe("Continue after this event, as far back as the server keeps events."),
      }),
    },
    responses: {
      200: response("Server-sent events. The data of each one is an Event.", EVENT_DATA, "text/event-stream"),
      ...problemResponses("INVALID", "AUTH", "LIMIT", "DRAINING"),
    },
  }),
};

export class EventStream {
  readonly #service: GatewayService;
  readonly #eventLog: EventLog;
  readonly #streams: SentEvents;

  constructor(service: GatewayService, eventLog: EventLog, streams: SentEvents) {
    this.#service = service;
    this.#eventLog = eventLog;
    this.#streams = streams;
  }

  /** @throws RequestError LIMIT if there are too many streams, DRAINING if the server is stopping */
  events(c: HttpContext): Response {
    const { isDraining, runId } = this.#service;
    if (isDraining) throw drainingError();
    const { incoming } = c.env;
    const principal = c.get("principal");
    const prefix = parsePrefix(parseQuery(c, Object.keys(EventsQuery.shape)).get("prefix"));
    const [afterSequence, hasMissed] = parseLastEventId(incoming.headers["last-event-id"], runId);
    const filter = { prefix, canSee: visibleKeys(principal), account: principal.name };
    const welcome = hasMissed ? ": welcome\n\nevent: gap\ndata: {}\n\n" : ": welcome\n\n";
    return this.#streams.open(c, principal, welcome, (write) =>
      this.#eventLog.subscribe(filter, (batch) => write(formatBatch(batch, runId)), afterSequence),
    );
  }
}

/** The sequence number to continue after (undefined: only new events), and whether events may have been missed. */
export function parseLastEventId(
  header: string | string[] | undefined,
  runId: string,
): readonly [number | undefined, boolean] {
  if (header === undefined || header === "") return [undefined, false];
  const match = typeof header === "string" ? /^([a-z2-7]{1,26})-(\d{1,15})$/.exec(header) : null;
  if (match === null) {
    throw invalidField("last-event-id", "malformed", "Last-Event-ID must be the id of an event of this server");
  }
  // the events of an earlier server run are gone
  return match[1] === runId ? [Number(match[2]), false] : [0, true];
}

function formatBatch({ events, hasGap }: EventBatch, runId: string): string {
  let text = hasGap ? "event: gap\ndata: {}\n\n" : "";
  for (const event of events) text += formatEvent(event, runId);
  return text;
}

function formatEvent({ seq, token, ...event }: RecordedEvent, runId: string): string {
  const data = JSON.stringify({
    ...event,
    at: new Date(event.at).toISOString(),
    token: token === undefined ? null : String(token),
  });
  return `id: ${runId}-${seq}\nevent: ${event.kind}\ndata: ${data}\n\n`;
}
