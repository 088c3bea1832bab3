/**
 * The server's metrics in Prometheus' text format. They contain no key, label or account: their size does not grow with
 * use, and reading them reveals nothing about what is locked.
 */

import type { EventKind } from "../../lock-table/events.ts";
import { ALL_ERROR_CODES, ERROR_CODES } from "../error-codes.ts";
import { EVENT_KINDS } from "./event-ring.ts";

/** The content type of Metrics.render(). */
export const METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

/** Upper bounds of the buckets, in seconds; the last one is infinity. */
const BUCKETS: readonly number[] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1_800, 3_600];

const BUCKETS_MS: readonly number[] = BUCKETS.map((seconds) => seconds * 1_000);

/** A histogram of durations with fixed buckets: enough for rates and rough quantiles, at the cost of a few numbers. */
export class Histogram {
  /** One count per bucket, not cumulative; one more than BUCKETS. */
  readonly counts: Float64Array = new Float64Array(BUCKETS.length + 1);
  /** Sum of all durations, in milliseconds. */
  sumMs = 0;

  add(ms: number): void {
    this.sumMs += ms;
    let bucket = 0;
    while (bucket < BUCKETS_MS.length && ms > (BUCKETS_MS[bucket] as number)) bucket++;
    this.counts[bucket] = (this.counts[bucket] as number) + 1;
  }
}

/** Connections open now, and since the start those accepted and those refused because of a limit. */
export interface ConnectionCounts {
  readonly open: number;
  readonly accepted: number;
  readonly rejected: number;
}

/** What the event log counts. */
interface EventCounts {
  readonly heldCount: number;
  readonly waitTimes: Histogram;
  readonly holdTimes: Histogram;
  readonly subscriberCount: number;
  count(kind: EventKind): number;
}

/** The values that are read only when the metrics are rendered. */
export interface MetricValues {
  readonly version: string;
  readonly eventLog: EventCounts;
  /** Connections of the lock protocol; null: it is not served. */
  readonly connections: ConnectionCounts | null;
  /** Connections over HTTP; null: HTTP is not served. */
  readonly http: ConnectionCounts | null;
  /** Failed authentication attempts since the start. */
  readonly authFailures: number;
  readonly sessions: number;
  /** Held and waiting claims. */
  readonly claims: number;
  /** Milliseconds until recovery ends; 0 when not recovering. */
  readonly recoveryRemainingMs: number;
}

/** Codes with a counter of their own, those of the lock protocol; all others share one. */
const COUNTED_CODES: readonly string[] = [...ALL_ERROR_CODES.filter((code) => ERROR_CODES[code].isCounted), "other"];

export class Metrics {
  readonly #refusals = new Map<string, number>(COUNTED_CODES.map((code) => [code, 0]));
  readonly #writes = { journal: { ok: 0, failed: 0 }, state: { ok: 0, failed: 0 } };

  /** A call, or a complete connection, was refused with this code of the protocol. */
  recordRefusal(code: string): void {
    const counted = this.#refusals.has(code) ? code : "other";
    this.#refusals.set(counted, (this.#refusals.get(counted) as number) + 1);
  }

  /** A durable write succeeded or failed. */
  recordWrite(file: "journal" | "state", isOk: boolean): void {
    this.#writes[file][isOk ? "ok" : "failed"]++;
  }

  /** All metrics, in Prometheus' text format (content type METRICS_TYPE). */
  render(values: MetricValues): string {
    return [
      ...renderLocks(values),
      ...this.#renderClients(values),
      ...this.#renderServer(values),
      ...renderProcess(),
      "",
    ].join("\n");
  }

  #renderClients({ connections, http, authFailures, sessions, eventLog }: MetricValues): string[] {
    return [
      ...(connections === null ? [] : renderConnections("holdfast_connections", "Connections", connections)),
      ...(http === null ? [] : renderConnections("holdfast_http_connections", "HTTP connections", http)),
      ...renderValue("holdfast_sessions", "gauge", "Known clients, connected or not.", sessions),
      ...renderValue("holdfast_subscribers", "gauge", "Subscribers to events.", eventLog.subscriberCount),
      ...renderValue("holdfast_auth_failures_total", "counter", "Failed authentication attempts.", authFailures),
      ...renderFamily(
        "holdfast_refusals_total",
        "counter",
        "Refused calls and connections, by protocol error code.",
        [...this.#refusals].map(([code, count]) => [`{code="${code}"}`, count]),
      ),
    ];
  }

  #renderServer({ version, recoveryRemainingMs }: MetricValues): string[] {
    const { journal, state } = this.#writes;
    return [
      ...renderFamily("holdfast_info", "gauge", "The running version; always 1.", [[`{version="${version}"}`, 1]]),
      ...renderValue(
        "holdfast_reclaiming_seconds",
        "gauge",
        "Seconds until recovery ends and new locks are granted; 0 when not recovering.",
        recoveryRemainingMs / 1_000,
      ),
      ...renderFamily("holdfast_writes_total", "counter", "Durable writes, by file and outcome.", [
        ['{file="journal",result="ok"}', journal.ok],
        ['{file="journal",result="failed"}', journal.failed],
        ['{file="state",result="ok"}', state.ok],
        ['{file="state",result="failed"}', state.failed],
      ]),
    ];
  }
}

/** Claims by state, and their events. */
function renderLocks({ eventLog, claims }: MetricValues): string[] {
  const { heldCount, waitTimes, holdTimes } = eventLog;
  return [
    ...renderFamily("holdfast_claims", "gauge", "Current claims, by state.", [
      ['{state="held"}', heldCount],
      ['{state="waiting"}', Math.max(claims - heldCount, 0)],
    ]),
    ...renderFamily(
      "holdfast_claim_events_total",
      "counter",
      "Claim events; the end of a claim that was never granted counts too.",
      EVENT_KINDS.map((event) => [`{event="${event}"}`, eventLog.count(event)]),
    ),
    ...renderHistogram("holdfast_wait_seconds", "Time from placing a claim to its grant.", waitTimes),
    ...renderHistogram("holdfast_hold_seconds", "Time from the grant of a claim to its end.", holdTimes),
  ];
}

/** Process metrics under the names that common dashboards use. */
function renderProcess(): string[] {
  const { user, system } = process.cpuUsage();
  const { rss, heapUsed } = process.memoryUsage();
  const { active, idle } = performance.eventLoopUtilization();
  const startedAt = (Date.now() - process.uptime() * 1_000) / 1_000;
  return [
    ...renderValue("process_cpu_seconds_total", "counter", "CPU time used.", (user + system) / 1_000_000),
    ...renderValue("process_resident_memory_bytes", "gauge", "Memory in use.", rss),
    ...renderValue(
      "process_start_time_seconds",
      "gauge",
      "Start time of the process, in seconds since 1970.",
      startedAt,
    ),
    ...renderValue("nodejs_heap_size_used_bytes", "gauge", "Heap in use.", heapUsed),
    ...renderFamily("nodejs_eventloop_seconds_total", "counter", "Time that the event loop was busy and idle.", [
      ['{state="active"}', active / 1_000],
      ['{state="idle"}', idle / 1_000],
    ]),
  ];
}

function renderConnections(name: string, noun: string, { open, accepted, rejected }: ConnectionCounts): string[] {
  return [
    ...renderValue(name, "gauge", `${noun} open now.`, open),
    ...renderValue(`${name}_total`, "counter", `${noun} accepted.`, accepted),
    ...renderValue(`${name}_refused_total`, "counter", `${noun} refused because of a limit.`, rejected),
  ];
}

type Sample = readonly [labels: string, value: number];

function renderValue(name: string, type: "counter" | "gauge", help: string, value: number): string[] {
  return renderFamily(name, type, help, [["", value]]);
}

function renderFamily(name: string, type: "counter" | "gauge", help: string, samples: readonly Sample[]): string[] {
  return [...renderHead(name, type, help), ...samples.map(([labels, value]) => `${name}${labels} ${value}`)];
}

function renderHistogram(name: string, help: string, { counts, sumMs }: Histogram): string[] {
  let sum = 0;
  const buckets = [...counts].map((count, step) => {
    sum += count;
    return `${name}_bucket{le="${BUCKETS[step] ?? "+Inf"}"} ${sum}`;
  });
  return [...renderHead(name, "histogram", help), ...buckets, `${name}_sum ${sumMs / 1_000}`, `${name}_count ${sum}`];
}

function renderHead(name: string, type: string, help: string): string[] {
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`];
}
