/** The spans of a client: one for each wait, and one for the work under a lock. Both are children of the caller's span. */

import type { Attributes, Span, Tracer } from "@opentelemetry/api";
import { SpanStatusCode } from "@opentelemetry/api";
import type { LockEvent } from "../client/events.ts";
import type { Lock } from "../client/lock.ts";
import type { Locks } from "../client/locks.ts";
import { intercept } from "../client/locks.ts";
import type { LockLostError } from "../errors.ts";
import { errorTypeOf } from "./attributes.ts";

/** @param attributesOf what all spans of a request have */
export function recordSpans(
  locks: Locks,
  tracer: Tracer,
  attributesOf: (event: LockEvent) => Attributes,
): readonly Disposable[] {
  const waits = new Map<number, Span>();
  const endWait = (request: number, attributes: Attributes): void => {
    waits.get(request)?.setAttributes(attributes).end();
    waits.delete(request);
  };
  return [
    locks.on("requested", (event) => {
      const attributes = attributesOf(event);
      // a child of the active span, since the event is emitted in the caller's async context
      waits.set(event.request, tracer.startSpan(nameSpan("acquire", attributes), { attributes }));
    }),
    locks.on("acquired", ({ request, token }) =>
      endWait(request, { "holdfast.outcome": "granted", ...toTokenAttribute(locks, () => token) }),
    ),
    locks.on("failed", ({ request, outcome, error }) => {
      const isFault = outcome === "timeout" || outcome === "error";
      if (isFault) waits.get(request)?.setStatus({ code: SpanStatusCode.ERROR });
      endWait(request, { "holdfast.outcome": outcome, ...(isFault && { "error.type": errorTypeOf(error) }) });
    }),
    intercept(locks, (lock, event, run) => {
      const attributes = { ...attributesOf(event), ...toTokenAttribute(locks, () => lock.token) };
      return tracer.startActiveSpan(nameSpan("hold", attributes), { attributes }, (span) => runInSpan(span, lock, run));
    }),
    {
      [Symbol.dispose]: () => {
        for (const request of [...waits.keys()]) endWait(request, {});
      },
    },
  ];
}

/** Errors are described by their type alone: messages contain keys. */
async function runInSpan<T>(span: Span, lock: Lock, run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    span.setStatus({ code: SpanStatusCode.ERROR }).setAttribute("error.type", errorTypeOf(error));
    throw error;
  } finally {
    // also if the function has failed for another reason, perhaps because of the loss
    if (lock.signal.aborted) {
      const { reason } = lock.signal.reason as LockLostError;
      span.setStatus({ code: SpanStatusCode.ERROR }).setAttribute("holdfast.lost.reason", reason);
    }
    span.end();
  }
}

function nameSpan(verb: "acquire" | "hold", attributes: Attributes): string {
  return `${verb} ${attributes["holdfast.key.template"] ?? "lock"}`;
}

/** As text: an attribute has no bigint, and a number would round it. */
function toTokenAttribute(locks: Locks, readToken: () => bigint): Attributes {
  return locks.traits?.fencing === true ? { "holdfast.token": String(readToken()) } : {};
}
