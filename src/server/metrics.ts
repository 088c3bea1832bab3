/** What a server counts, as Prometheus reads it. No key, label or account stands in it: its size does not grow with use. */

import type { Record } from "./record.ts";

/** What the counters are told, by whoever sees it happen. */
export interface Tally {
  /** A call, or a whole connection, was refused with this code of the protocol. */
  refused(code: string): void;
  /** Somebody showed a credential that is none, or none where one is asked for. */
  authFailed(): void;
  /** A connection was accepted. */
  connected(): void;
  /** Something was written durably, or could not be. */
  wrote(what: "journal" | "state", ok: boolean): void;
}

/** Where the numbers come from that are looked up only when somebody asks. */
export interface MetricSources {
  readonly record: Record;
  readonly version: string;
  /** Wall clock at the start, milliseconds since 1970. */
  readonly startedAt: number;
  readonly connections: () => number;
  readonly sessions: () => number;
  /** Held and waiting. */
  readonly claims: () => number;
  /** Milliseconds until new grants are made; 0: they are. */
  readonly reclaimMs: () => number;
}

export class Metrics implements Tally {
  readonly #sources: MetricSources;
  constructor(sources: MetricSources) {
    this.#sources = sources;
  }
  refused(_code: string): void {}
  authFailed(): void {}
  connected(): void {}
  wrote(_what: "journal" | "state", _ok: boolean): void {}
  /** Everything, in Prometheus' text format (content type METRICS_TYPE). */
  text(): string {
    return this.#sources.version;
  }
}

/** The content type of Metrics.text(). */
export const METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8";
