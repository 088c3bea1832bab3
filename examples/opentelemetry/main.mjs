// Sends spans and metrics of locks over OTLP to OTEL_EXPORTER_OTLP_ENDPOINT (default: http://localhost:4318).
// npm install holdfast @opentelemetry/api @opentelemetry/sdk-trace-node @opentelemetry/sdk-metrics
//   @opentelemetry/exporter-trace-otlp-http @opentelemetry/exporter-metrics-otlp-http

import { metrics, trace } from "@opentelemetry/api";
import { OTLPMetricExporter } from "@opentelemetry/exporter-metrics-otlp-http";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { MeterProvider, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";
import { connect } from "holdfast";
import { instrument } from "holdfast/opentelemetry";

// the providers of the program, before anything is instrumented
const tracerProvider = new NodeTracerProvider({ spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())] });
tracerProvider.register();
const meterProvider = new MeterProvider({
  readers: [new PeriodicExportingMetricReader({ exporter: new OTLPMetricExporter() })],
});
metrics.setGlobalMeterProvider(meterProvider);

const locks = await connect();
instrument(locks, { keyTemplate: (key) => key.replace(/\d+/g, "{id}") });

const tracer = trace.getTracer("shop");
const inSpan = (name, work) =>
  tracer.startActiveSpan(name, async (span) => {
    try {
      return await work();
    } finally {
      span.end();
    }
  });

// the template of the key becomes an attribute, the key does not
const reserve = locks.wrap("item:#{item}", (item) => inSpan("update stock", async () => `reserved ${item}`));
console.log(await inSpan("order", () => Promise.all([reserve("hat"), reserve("hat")])));

// a wait that ends without the lock
const lock = await locks.acquire("report:7");
await locks.acquire("report:7", { wait: "50ms" }).catch((error) => console.log(error.code));
await lock.release();

await locks.close();
await Promise.all([tracerProvider.shutdown(), meterProvider.shutdown()]);
