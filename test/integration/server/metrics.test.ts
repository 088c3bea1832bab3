import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { ClaimLifecycle, EventKind } from "../../../src/server/events/event-log.ts";
import { EventLog } from "../../../src/server/events/event-log.ts";
import { Metrics } from "../../../src/server/events/metrics.ts";
import { until } from "../../../src/testing/until.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { cleanUpAfterEach, expectHeld, makeClaim, openClient, startServer } from "../../support/server-fixture.ts";

cleanUpAfterEach();

interface MetricFamily {
  readonly type: string;
  readonly help: string;
  readonly samples: Map<string, number>;
}

/** The text format of Prometheus as its documentation defines it, and nothing beyond; throws for other text. */
function parseMetrics(text: string): Map<string, MetricFamily> {
  if (!text.endsWith("\n")) throw new Error("the last line must end with a line feed");
  const families = new Map<string, MetricFamily>();
  let current: { name: string; family: MetricFamily } | null = null;
  let help: readonly string[] | null = null;
  for (const line of text.slice(0, -1).split("\n")) {
    const helpMatch = /^# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) ([^\\]*)$/.exec(line);
    if (helpMatch !== null) {
      help = [helpMatch[1] as string, helpMatch[2] as string];
      continue;
    }
    const typed = /^# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram)$/.exec(line);
    if (typed !== null) {
      const [, name, type] = typed as unknown as [string, string, string];
      if (help?.[0] !== name) throw new Error(`TYPE of ${name} without its HELP`);
      if (families.has(name)) throw new Error(`${name} comes twice`);
      current = { name, family: { type, help: help[1] as string, samples: new Map() } };
      families.set(name, current.family);
      continue;
    }
    const sample =
      /^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)+\})? (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)$/.exec(
        line,
      );
    if (sample === null || current === null) throw new Error(`not a sample: ${line}`);
    const [, name, labels = "", value] = sample as unknown as [string, string, string | undefined, string];
    const suffix = name.slice(current.name.length);
    const suffixes = current.family.type === "histogram" ? ["_bucket", "_sum", "_count"] : [""];
    if (!name.startsWith(current.name) || !suffixes.includes(suffix)) throw new Error(`${name} under ${current.name}`);
    if (current.family.samples.has(suffix + labels)) throw new Error(`${line} comes twice`);
    current.family.samples.set(suffix + labels, Number(value));
  }
  return families;
}

function claimLifecycle(token: number, heldAt = 0): ClaimLifecycle {
  const claim = { id: "i", locks: [{ key: "secret-key", permits: 1, limit: 1 }], label: "secret-label" };
  return { claim: claim as unknown as ClaimLifecycle["claim"], token, placedAt: 0, heldAt, account: "secret-account" };
}

const CONNECTION_COUNTS = { open: 3, accepted: 5, rejected: 1 };

function createMetrics(claims = 0): {
  readonly metrics: Metrics;
  readonly record: EventLog;
  readonly render: () => string;
} {
  const eventLog = new EventLog({ clock: new FakeClock() });
  const metrics = new Metrics();
  const values = {
    eventLog,
    version: "1.2.3",
    connections: CONNECTION_COUNTS,
    http: CONNECTION_COUNTS,
    authFailures: 4,
    sessions: 2,
    claims,
    recoveryRemainingMs: 1_500,
  };
  return { metrics, record: eventLog, render: () => metrics.render(values) };
}

test("the metrics are in Prometheus' format, each with its help", () => {
  const families = parseMetrics(createMetrics().render());
  expect(families.size).toBeGreaterThan(15);
  for (const [name, { help, type, samples }] of families) {
    expect(help, name).toMatch(/^[A-Z].*\.$/);
    expect(samples.size, name).toBeGreaterThan(0);
    if (type === "counter") expect(name).toMatch(/_total$/);
  }
});

test("the metrics agree with stats(): sessions and claims, held and waiting", async () => {
  const it = await startServer({ http: "127.0.0.1:0" });
  const [client, other] = [await openClient(it.addresses[0] as string), await openClient(it.addresses[0] as string)];
  expectHeld(await client.driver.claim(makeClaim("a")));
  expectHeld(await client.driver.claim(makeClaim(["b", "c"])));
  await other.driver.claim(makeClaim("a"));
  const figures = async (): Promise<Map<string, number>> => {
    const families = parseMetrics(await (await fetch(`${it.httpAddress}/metrics`)).text());
    const allSamples = [...families].flatMap(([name, { samples }]) =>
      [...samples].map(([labels, n]) => [`${name}${labels}`, n] as const),
    );
    return new Map(allSamples);
  };
  const now = await figures();
  const sum = (now.get('holdfast_claims{state="held"}') ?? 0) + (now.get('holdfast_claims{state="waiting"}') ?? 0);
  expect([sum, now.get("holdfast_sessions")]).toEqual([it.stats().claims, it.stats().sessions]);
  expect([now.get('holdfast_claims{state="held"}'), it.stats().sessions]).toEqual([2, 2]);
  expect(now.get("holdfast_connections")).toBe(2);
  await client.driver.close();
  await until(() => it.stats().sessions === 1, { within: 2_000, what: "the end of a session" });
  const later_ = await figures();
  // its claims ended with it, and the waiter now holds
  expect([later_.get('holdfast_claims{state="held"}'), later_.get("holdfast_sessions")]).toEqual([1, 1]);
  expect(it.stats().claims).toBe(1);
});

test("claims are counted by outcome, with how long they waited and were held", () => {
  const { render, record } = createMetrics(5);
  const steps: readonly (readonly [EventKind, ClaimLifecycle, number])[] = [
    ["granted", claimLifecycle(1), 0],
    ["granted", claimLifecycle(2), 40],
    ["waiting", claimLifecycle(0), 40],
    ["granted", claimLifecycle(3), 7_200_000],
    ["released", claimLifecycle(1, 10), 12],
    ["withdrawn", claimLifecycle(0), 100],
  ];
  for (const [kind, lived, now] of steps) record.onEvent(kind, lived, now);
  const families = parseMetrics(render());
  const value = (name: string, sample: string): number | undefined => families.get(name)?.samples.get(sample);
  expect(value("holdfast_claims", '{state="held"}')).toBe(2);
  expect(value("holdfast_claims", '{state="waiting"}')).toBe(3);
  expect(value("holdfast_claim_events_total", '{event="granted"}')).toBe(3);
  expect(value("holdfast_claim_events_total", '{event="withdrawn"}')).toBe(1);
  expect(value("holdfast_wait_seconds", '_bucket{le="0.001"}')).toBe(1);
  expect(value("holdfast_wait_seconds", '_bucket{le="0.05"}')).toBe(2);
  expect(value("holdfast_wait_seconds", '_bucket{le="3600"}')).toBe(2);
  expect(value("holdfast_wait_seconds", '_bucket{le="+Inf"}')).toBe(3);
  expect(value("holdfast_wait_seconds", "_count")).toBe(3);
  expect(value("holdfast_wait_seconds", "_sum")).toBe(7_200.04);
  expect(value("holdfast_hold_seconds", '_bucket{le="0.005"}')).toBe(1);
});

test("refusals by code, failed logins, connections and writes are counted", () => {
  const { metrics, render } = createMetrics();
  for (const code of ["FORBIDDEN", "FORBIDDEN", "LIMIT", 'a"b\n', "__proto__"]) metrics.recordRefusal(code);
  metrics.recordWrite("journal", true);
  metrics.recordWrite("state", false);
  const families = parseMetrics(render());
  const refusals = families.get("holdfast_refusals_total")?.samples;
  expect(refusals?.get('{code="FORBIDDEN"}')).toBe(2);
  expect(refusals?.get('{code="LIMIT"}')).toBe(1);
  expect(refusals?.get('{code="other"}')).toBe(2);
  expect(families.get("holdfast_auth_failures_total")?.samples.get("")).toBe(4);
  expect(families.get("holdfast_connections")?.samples.get("")).toBe(3);
  expect(families.get("holdfast_connections_total")?.samples.get("")).toBe(5);
  expect(families.get("holdfast_sessions")?.samples.get("")).toBe(2);
  expect(families.get("holdfast_writes_total")?.samples.get('{file="journal",result="ok"}')).toBe(1);
  expect(families.get("holdfast_writes_total")?.samples.get('{file="state",result="failed"}')).toBe(1);
  expect(families.get("holdfast_reclaiming_seconds")?.samples.get("")).toBe(1.5);
});

test("no metric contains a key, label or account, and the number of metrics does not grow with use", () => {
  const { metrics, record, render } = createMetrics();
  const before = render().split("\n").length;
  for (let turn = 1; turn < 100; turn++) {
    record.onEvent("granted", claimLifecycle(turn), turn);
    metrics.recordRefusal(`CODE${turn}`);
  }
  const text = render();
  expect(text).not.toContain("secret");
  expect(text.split("\n")).toHaveLength(before);
});

test("the guide has a row for every metric, and no other", () => {
  const guide = readFileSync("docs/guide/operations.md", "utf8");
  const written = [...guide.matchAll(/^\| `(?:holdfast|process|nodejs)_.*$/gm)].map(([row]) => row);
  const families = [...parseMetrics(createMetrics().render())];
  expect(written).toEqual(families.map(([name, { type, help }]) => `| \`${name}\` | ${type} | ${help} |`));
});
