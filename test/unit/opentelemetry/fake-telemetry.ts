/** Providers of OpenTelemetry that keep what they receive. The real SDK is in test/docs/observability-examples.test.ts. */

import { AsyncLocalStorage } from "node:async_hooks";
import type { Attributes, MeterProvider, Span, SpanOptions, TracerProvider } from "@opentelemetry/api";

export interface Point {
  readonly name: string;
  readonly value: number;
  readonly attributes: Attributes;
}

interface RecordedSpan {
  readonly name: string;
  /** The name of the span that was active when this one began. */
  readonly parent: string | undefined;
  readonly attributes: Attributes;
  /** 2: an error. */
  statusCode: number;
  isEnded: boolean;
}

export interface FakeTelemetry {
  readonly points: Point[];
  readonly spans: RecordedSpan[];
  readonly tracerProvider: TracerProvider;
  readonly meterProvider: MeterProvider;
  /** Runs `work` in an active span. */
  inSpan<T>(name: string, work: () => T): T;
  /** The sum of what was added to a counter. */
  sumOf(name: string): number;
}

export function createFakeTelemetry(): FakeTelemetry {
  const [points, spans]: [Point[], RecordedSpan[]] = [[], []];
  const active = new AsyncLocalStorage<string>();
  const instrumentOf = (name: string): object => {
    const record = (value: number, attributes: Attributes): void => void points.push({ name, value, attributes });
    return { record, add: record };
  };
  const meter = {
    createHistogram: instrumentOf,
    createCounter: instrumentOf,
    createUpDownCounter: instrumentOf,
  };
  const startSpan = (name: string, { attributes = {} }: SpanOptions = {}): Span => {
    const recorded: RecordedSpan = {
      name,
      parent: active.getStore(),
      attributes: { ...attributes },
      statusCode: 0,
      isEnded: false,
    };
    spans.push(recorded);
    const span = {
      setAttributes(added: Attributes) {
        Object.assign(recorded.attributes, added);
        return span;
      },
      setAttribute: (key: string, value: string) => span.setAttributes({ [key]: value }),
      setStatus({ code }: { readonly code: number }) {
        recorded.statusCode = code;
        return span;
      },
      end() {
        recorded.isEnded = true;
      },
    };
    return span as unknown as Span;
  };
  const tracer = {
    startSpan,
    startActiveSpan: <T>(name: string, options: SpanOptions, work: (span: Span) => T): T => {
      const span = startSpan(name, options);
      return active.run(name, () => work(span));
    },
  };
  return {
    points,
    spans,
    tracerProvider: { getTracer: () => tracer } as unknown as TracerProvider,
    meterProvider: { getMeter: () => meter } as unknown as MeterProvider,
    inSpan: (name, work) => active.run(name, work),
    sumOf: (name) => points.filter((point) => point.name === name).reduce((sum, { value }) => sum + value, 0),
  };
}
