/** instrument(): spans and metrics of a client. */

import type { MeterProvider, TracerProvider } from "@opentelemetry/api";
import { metrics, trace } from "@opentelemetry/api";
import type { LockEvent } from "../client/events.ts";
import type { Locks } from "../client/locks.ts";
import type { OptionRules } from "../util/validate.ts";
import { functionRule, locksRule, requireValid, validateOptions } from "../util/validate.ts";
import { toAttributes } from "./attributes.ts";
import { recordMetrics } from "./metrics.ts";
import { recordSpans } from "./spans.ts";

/** The options of instrument(). */
export interface InstrumentOptions {
  /**
   * Returns what stands for a key in metrics and spans, the same for many keys; undefined: nothing. For requests that have no
   * template: neither the option `keyTemplate` nor one of wrap() or @locked(). Default: these have no such attribute.
   */
  readonly keyTemplate?: ((key: string) => string | undefined) | undefined;
  /** Default: the global one. */
  readonly tracerProvider?: TracerProvider | undefined;
  /** Default: the global one, which must be set before: metrics of an earlier one are not recorded. */
  readonly meterProvider?: MeterProvider | undefined;
}

const NAME = "holdfast";

const methodRule =
  (method: string, expected: string) =>
  (value: unknown): string | null =>
    typeof (Object(value) as Readonly<Record<string, unknown>>)[method] === "function" ? null : expected;

const RULES: OptionRules<InstrumentOptions> = {
  keyTemplate: functionRule,
  tracerProvider: methodRule("getTracer", "a tracer provider"),
  meterProvider: methodRule("getMeter", "a meter provider"),
};

/**
 * Records spans and metrics of these locks from now on. The Disposable ends that, and ends the spans of requests that still wait.
 * @throws TypeError for a value that is no Locks, or naming the wrong option
 */
export function instrument(locks: Locks, options: InstrumentOptions = {}): Disposable {
  requireValid(locks, "locks", locksRule);
  validateOptions("instrument", options, RULES);
  const { keyTemplate, tracerProvider = trace, meterProvider = metrics } = options;
  const attributesOf = (event: LockEvent) => toAttributes(event, keyTemplate);
  const recordings = [
    ...recordMetrics(locks, meterProvider.getMeter(NAME), attributesOf),
    ...recordSpans(locks, tracerProvider.getTracer(NAME), attributesOf),
  ];
  return {
    [Symbol.dispose]: () => {
      for (const recording of recordings) recording[Symbol.dispose]();
    },
  };
}
