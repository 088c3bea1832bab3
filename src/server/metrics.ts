/**
 * What a server counts, as Prometheus reads it. No key, label or account stands in it: its size does not grow with use,
 * and who may read it learns nothing of what is locked.
 */

import type { Histogram } from "./histogram.ts";
import { STEPS } from "./histogram.ts";
import type { Record } from "./record.ts";
import { KINDS } from "./ring.ts";

/** The content type of Metrics.text(). */
export const METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

/** What the counters are told, by whoever sees it happen. */
export interface Tally {
  /** A call, or a whole connection, was refused with this code of the protocol. */
  refused(code: string): void;
  /** Something was written durably, or could not be. */
  wrote(what: "journal" | "state", ok: boolean): void;
}

/** Connections open now, and since the start those that were accepted and those that found no room. */
export interface Connected {
  readonly inside: number;
  readonly accepted: number;
  readonly turnedAway: number;
}

/** Where the numbers come from that are looked up only when somebody asks. */
export interface MetricSources {
  readonly record: Record;
  readonly version: string;
  /** By the lock protocol. */
  readonly connections: () => Connected;
  /** Over HTTP; null: there is no such port. Default: there is none. */
  readonly web?: () => Connected | null;
  /** How often somebody was not let in, since the start. */
  readonly authFailures: () => number;
  readonly sessions: () => number;
  /** Held and waiting. */
  readonly claims: () => number;
  /** Milliseconds until new grants are made; 0: they are. */
  readonly reclaimMs: () => number;
}

/** Codes that are counted one by one; all others together. */
const CODES = [
  "AUTH",
  "DISK",
  "DRAINING",
  "FATAL",
  "FLOOR",
  "FORBIDDEN",
  "INTERNAL",
  "LIMIT",
  "PROTOCOL",
  "RECLAIMING",
  "REPLACED",
  "START",
  "STORE",
  "UNSUPPORTED",
  "VERSION",
  "other",
] as const;
type Code = (typeof CODES)[number];

export class Metrics implements Tally {
  readonly #sources: MetricSources;
  readonly #refused = new Map<Code, number>(CODES.map((code) => [code, 0]));
  readonly #wrote = { journal: { ok: 0, failed: 0 }, state: { ok: 0, failed: 0 } };

  constructor(sources: MetricSources) {
    this.#sources = sources;
  }

  refused(code: string): void {
    const known = this.#refused.has(code as Code) ? (code as Code) : "other";
    this.#refused.set(known, (this.#refused.get(known) as number) + 1);
  }

  wrote(what: "journal" | "state", ok: boolean): void {
    this.#wrote[what][ok ? "ok" : "failed"]++;
  }

  /** Everything, in Prometheus' text format (content type METRICS_TYPE). */
  text(): string {
    return [...this.#ofLocks(), ...this.#ofClients(), ...this.#ofServer(), ...ofProcess(), ""].join("\n");
  }

  #ofLocks(): string[] {
    const { record, claims } = this.#sources;
    const { held, waits, holds } = record;
    return [
      ...family("holdfast_claims", "gauge", "Current claims, by state.", [
        ['{state="held"}', held],
        ['{state="waiting"}', Math.max(claims() - held, 0)],
      ]),
      ...family(
        "holdfast_claim_events_total",
        "counter",
        "Claim events; the end of a claim that was never granted counts too.",
        KINDS.map((event) => [`{event="${event}"}`, record.count(event)]),
      ),
      ...distribution("holdfast_wait_seconds", "Time from placing a claim to its grant.", waits),
      ...distribution("holdfast_hold_seconds", "Time from the grant of a claim to its end.", holds),
    ];
  }

  #ofClients(): string[] {
    const { connections, web, authFailures, sessions, record } = this.#sources;
    const overHttp = web?.() ?? null;
    return [
      ...connected("holdfast_connections", "Connections", connections()),
      ...(overHttp === null ? [] : connected("holdfast_http_connections", "HTTP connections", overHttp)),
      ...one("holdfast_sessions", "gauge", "Known clients, connected or not.", sessions()),
      ...one("holdfast_subscribers", "gauge", "Subscribers to events.", record.subscribers),
      ...one("holdfast_auth_failures_total", "counter", "Failed authentication attempts.", authFailures()),
      ...family(
        "holdfast_refusals_total",
        "counter",
        "Refused calls and connections, by protocol error code.",
        [...this.#refused].map(([code, times]) => [`{code="${code}"}`, times]),
      ),
    ];
  }

  #ofServer(): string[] {
    const { version, reclaimMs } = this.#sources;
    const { journal, state } = this.#wrote;
    return [
      ...family("holdfast_info", "gauge", "The running version; always 1.", [[`{version="${version}"}`, 1]]),
      ...one(
        "holdfast_reclaiming_seconds",
        "gauge",
        "Seconds until recovery ends and new locks are granted; 0 when not recovering.",
        reclaimMs() / 1_000,
      ),
      ...family("holdfast_writes_total", "counter", "Durable writes, by file and outcome.", [
        ['{file="journal",result="ok"}', journal.ok],
        ['{file="journal",result="failed"}', journal.failed],
        ['{file="state",result="ok"}', state.ok],
        ['{file="state",result="failed"}', state.failed],
      ]),
    ];
  }
}

/** What every process has, under the names that every dashboard knows. */
function ofProcess(): string[] {
  const { user, system } = process.cpuUsage();
  const { rss, heapUsed } = process.memoryUsage();
  const { active, idle } = performance.eventLoopUtilization();
  const startedAt = (Date.now() - process.uptime() * 1_000) / 1_000;
  return [
    ...one("process_cpu_seconds_total", "counter", "CPU time used.", (user + system) / 1_000_000),
    ...one("process_resident_memory_bytes", "gauge", "Memory in use.", rss),
    ...one("process_start_time_seconds", "gauge", "Start time of the process, in seconds since 1970.", startedAt),
    ...one("nodejs_heap_size_used_bytes", "gauge", "Heap in use.", heapUsed),
    ...family("nodejs_eventloop_seconds_total", "counter", "Time that the event loop was busy and idle.", [
      ['{state="active"}', active / 1_000],
      ['{state="idle"}', idle / 1_000],
    ]),
  ];
}

function connected(name: string, what: string, { inside, accepted, turnedAway }: Connected): string[] {
  return [
    ...one(name, "gauge", `${what} open now.`, inside),
    ...one(`${name}_total`, "counter", `${what} accepted.`, accepted),
    ...one(`${name}_refused_total`, "counter", `${what} refused because of a limit.`, turnedAway),
  ];
}

type Sample = readonly [labels: string, value: number];

function one(name: string, type: "counter" | "gauge", help: string, value: number): string[] {
  return family(name, type, help, [["", value]]);
}

function family(name: string, type: "counter" | "gauge", help: string, samples: readonly Sample[]): string[] {
  return [...head(name, type, help), ...samples.map(([labels, value]) => `${name}${labels} ${value}`)];
}

function distribution(name: string, help: string, { counts, sumMs }: Histogram): string[] {
  let sum = 0;
  const buckets = [...counts].map((count, step) => {
    sum += count;
    return `${name}_bucket{le="${STEPS[step] ?? "+Inf"}"} ${sum}`;
  });
  return [...head(name, "histogram", help), ...buckets, `${name}_sum ${sumMs / 1_000}`, `${name}_count ${sum}`];
}

function head(name: string, type: string, help: string): string[] {
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`];
}
