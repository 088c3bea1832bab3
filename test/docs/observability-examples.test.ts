// The examples that send spans and metrics to a receiver of OTLP, and logs to pino.

import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";
import { expect, test } from "vitest";
import type { CommandResult } from "../support/cli-sandbox.ts";
import { cliSandbox } from "../support/cli-sandbox.ts";
import { prepareExample } from "../support/interop.ts";

const sandbox = cliSandbox();
const TIMEOUT = { timeout: 60_000 }; // the first run installs packages

test(
  "examples/opentelemetry sends spans with their parents, and metrics without keys, over OTLP",
  TIMEOUT,
  async () => {
    const receiver = await startReceiver();
    try {
      const result = await runExample("opentelemetry", { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url });
      expect(result).toMatchObject({ code: 0, out: "[ 'reserved hat', 'reserved hat' ]\nLOCK_TIMEOUT\n", err: "" });
    } finally {
      await receiver.close();
    }
    const { spans, metrics } = receiver;
    const template = "item:#{item}";
    expect(spans.map(({ name }) => name).sort()).toEqual(
      [
        ...["acquire report:{id}", "acquire report:{id}", `acquire ${template}`, `acquire ${template}`],
        ...[`hold ${template}`, `hold ${template}`, "order", "update stock", "update stock"],
      ].sort(),
    );
    const named = (name: string): OtlpSpan[] => spans.filter((span) => span.name === name);
    const [order] = named("order");
    for (const span of [...named(`acquire ${template}`), ...named(`hold ${template}`)]) {
      expect(span).toMatchObject({ traceId: order?.traceId, parentSpanId: order?.spanId });
      expect(readAttributes(span)).toMatchObject({
        "holdfast.key.template": template,
        "holdfast.mode": "exclusive",
        "holdfast.store": "server",
        "holdfast.token": expect.stringMatching(/^\d+$/),
      });
    }
    const holds = named(`hold ${template}`).map(({ spanId }) => spanId);
    const updates = named("update stock").map(({ parentSpanId }) => parentSpanId);
    expect(updates.sort()).toEqual(holds.sort());
    const timedOut = named("acquire report:{id}").filter(({ status }) => status.code === 2);
    expect(timedOut.map(readAttributes)).toMatchObject([
      { "holdfast.outcome": "timeout", "error.type": "LOCK_TIMEOUT", "holdfast.key.template": "report:{id}" },
    ]);

    const units = metrics.map(({ name, unit }) => `${name} ${unit}`);
    expect(units).toEqual(
      expect.arrayContaining([
        ...["holdfast.lock.wait s", "holdfast.lock.hold s"],
        ...["holdfast.lock.waiting {request}", "holdfast.lock.held {lock}"],
      ]),
    );
    const points = (name: string): readonly OtlpPoint[] => {
      const { histogram, sum } = metrics.find((metric) => metric.name === name) ?? {};
      return (histogram ?? sum)?.dataPoints ?? [];
    };
    const waits = points("holdfast.lock.wait").map((point) => [readAttributes(point)["holdfast.outcome"], point.count]);
    expect(waits.sort()).toEqual(
      [
        ["granted", 1],
        ["granted", 2],
        ["timeout", 1],
      ].sort(),
    );
    for (const name of ["holdfast.lock.waiting", "holdfast.lock.held"]) {
      expect(points(name).map(({ asDouble, asInt }) => Number(asDouble ?? asInt))).toEqual([0, 0]);
    }
    expect(JSON.stringify([spans, metrics])).not.toMatch(/report:7|item:hat/);
  },
);

test("examples/pino logs each event as a line of JSON with its level", TIMEOUT, async () => {
  const { code, out, err } = await runExample("pino", {});
  expect({ code, err }).toEqual({ code: 0, err: "" });
  const lines = out
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  const [debug, info, warn] = [20, 30, 40];
  expect(lines.map(({ level, event, msg }) => [level, event ?? msg])).toEqual([
    [debug, "acquired"],
    [info, "writing the report"],
    [debug, "released"],
    [debug, "acquired"],
    [debug, "waiting"],
    [warn, "failed"],
    [debug, "released"],
  ]);
  expect(lines[0]).toMatchObject({ component: "locks", keys: ["report:7"], token: expect.stringMatching(/^\d+$/) });
  expect(lines[5]).toMatchObject({ outcome: "timeout", err: { code: "LOCK_TIMEOUT" } });
  expect(lines[5]?.msg).toBe('the wait for "report:7" has ended without the lock');
});

interface OtlpAttributes {
  readonly attributes: readonly { readonly key: string; readonly value: { readonly stringValue?: string } }[];
}

interface OtlpSpan extends OtlpAttributes {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly status: { readonly code: number };
}

interface OtlpPoint extends OtlpAttributes {
  readonly count?: number;
  readonly asDouble?: number;
  readonly asInt?: number | string;
}

interface OtlpMetric {
  readonly name: string;
  readonly unit: string;
  readonly histogram?: { readonly dataPoints: readonly OtlpPoint[] };
  readonly sum?: { readonly dataPoints: readonly OtlpPoint[] };
}

interface OtlpRequest {
  readonly resourceSpans?: readonly { readonly scopeSpans: readonly { readonly spans: readonly OtlpSpan[] }[] }[];
  readonly resourceMetrics?: readonly {
    readonly scopeMetrics: readonly { readonly metrics: readonly OtlpMetric[] }[];
  }[];
}

function readAttributes({ attributes }: OtlpAttributes): Record<string, string | undefined> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue]));
}

/** A receiver of OTLP over HTTP, as a collector is one. */
async function startReceiver(): Promise<{
  readonly url: string;
  readonly spans: OtlpSpan[];
  readonly metrics: OtlpMetric[];
  close(): Promise<void>;
}> {
  const [spans, metrics]: [OtlpSpan[], OtlpMetric[]] = [[], []];
  const receive = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { resourceSpans = [], resourceMetrics = [] } = (await json(request)) as OtlpRequest;
    for (const { scopeSpans } of resourceSpans) spans.push(...scopeSpans.flatMap((scope) => scope.spans));
    for (const { scopeMetrics } of resourceMetrics) metrics.push(...scopeMetrics.flatMap((scope) => scope.metrics));
    response.writeHead(200, { "content-type": "application/json" }).end("{}");
  };
  const server = createServer((request, response) => void receive(request, response));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const close = async (): Promise<void> => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  return { url: `http://127.0.0.1:${port}`, spans, metrics, close };
}

function runExample(name: string, env: Readonly<Record<string, string>>): Promise<CommandResult> {
  return sandbox.startProgram([process.execPath, prepareExample(name)], { cwd: sandbox.folder, env }).ended;
}
