/** The operations of a history, put together from their events: what each one asked for, and from when to when it held. */

import type { HistoryEvent, NemesisEvent, Operation, RegisterEvent, RunHeader, WorkerEvent } from "./history.ts";

/** One attempt to get a lock. Times in microseconds; null: it has not happened. */
export interface OperationRecord extends Operation {
  readonly worker: number;
  readonly invokedAt: number;
  grantedAt: number | null;
  /** By key; null: the subject has none. */
  tokens: ReadonlyMap<string, bigint> | null;
  /** When it was first asked whether it holds, and said yes. */
  heldFrom: number | null;
  /** Until when it has said that it holds. */
  saidUntil: number | null;
  /** Asked at once after the grant, it said no. */
  wasDead: boolean;
  lostAt: number | null;
  releasingAt: number | null;
  releasedAt: number | null;
  wasHeld: boolean | null;
  /** It ended without a grant. */
  endedAt: number | null;
  isUnknown: boolean;
}

export interface WorkerRecord {
  readonly worker: number;
  readonly pid: number;
  endedAt: number | null;
  wasKilled: boolean;
  /** Why it ended; empty: normally. */
  reason: string;
  /** Its last event. */
  lastAt: number;
}

export interface FaultRecord {
  readonly id: number;
  readonly fault: string;
  readonly beganAt: number;
  endedAt: number;
  readonly workers: readonly number[] | null;
}

type KernelEvent = Extract<HistoryEvent, { event: "kernel" | "unlocked" }>;

export interface History {
  readonly header: RunHeader;
  /** In the order of their grants, then of their requests. */
  readonly operations: readonly OperationRecord[];
  readonly workers: ReadonlyMap<number, WorkerRecord>;
  readonly faults: readonly FaultRecord[];
  /** In the order of the register. */
  readonly register: readonly RegisterEvent[];
  /** In the order of time. */
  readonly kernel: readonly KernelEvent[];
  readonly bystanders: readonly (number | null)[];
  readonly unsupported: ReadonlyMap<string, string>;
  /** null: not asked. */
  readonly leftovers: number | null;
  readonly healedAt: number | null;
  readonly stoppingAt: number | null;
  readonly endedAt: number;
}

/** The name of an operation in a history. */
export function operationId({ worker, op }: { readonly worker: number; readonly op: number }): string {
  return `${worker}/${op}`;
}

/** @throws TypeError if the history has no header, or an event of an operation that was never invoked */
export function readOperations(events: Iterable<HistoryEvent>): History {
  const reader = new HistoryReader();
  for (const event of events) reader.add(event);
  return reader.finish();
}

class HistoryReader {
  readonly #operations = new Map<string, OperationRecord>();
  readonly #workers = new Map<number, WorkerRecord>();
  readonly #faults = new Map<number, FaultRecord>();
  readonly #register: RegisterEvent[] = [];
  readonly #kernel: KernelEvent[] = [];
  readonly #unsupported = new Map<string, string>();
  readonly #bystanders: (number | null)[] = [];
  #header: RunHeader | null = null;
  #leftovers: number | null = null;
  #healedAt: number | null = null;
  #stoppingAt: number | null = null;
  #endedAt = 0;

  add(event: HistoryEvent): void {
    if (event.event === "run") {
      this.#header = event;
      return;
    }
    this.#endedAt = Math.max(this.#endedAt, event.at);
    if (event.event === "worker") applyWorker(this.#workers, event);
    else if ("worker" in event) this.#addOfWorker(event);
    else this.#addOfNemesis(event);
  }

  #addOfWorker(event: WorkerEvent | RegisterEvent): void {
    const worker = this.#workers.get(event.worker);
    if (worker !== undefined) worker.lastAt = Math.max(worker.lastAt, event.at);
    switch (event.event) {
      case "invoke":
        this.#operations.set(operationId(event), startOperation(event));
        break;
      case "enter":
      case "write":
        this.#register.push(event);
        break;
      case "kernel":
      case "unlocked":
        this.#kernel.push(event);
        break;
      case "unsupported":
        this.#unsupported.set(event.kind, event.reason);
        break;
      default: {
        const record = this.#operations.get(operationId(event));
        if (record === undefined) throw new TypeError(`the history has no "invoke" of operation ${operationId(event)}`);
        applyToOperation(record, event);
      }
    }
  }

  #addOfNemesis(event: Exclude<NemesisEvent, { event: "worker" }>): void {
    switch (event.event) {
      case "fault": {
        const fault = this.#faults.get(event.id);
        if (fault !== undefined) fault.endedAt = event.at;
        else this.#faults.set(event.id, { ...event, beganAt: event.at, endedAt: Number.POSITIVE_INFINITY });
        break;
      }
      case "healed":
        this.#healedAt = event.at;
        break;
      case "stopping":
        this.#stoppingAt = event.at;
        break;
      case "bystander":
        this.#bystanders.push(event.ms);
        break;
      case "leftovers":
        this.#leftovers = event.count;
        break;
    }
  }

  finish(): History {
    if (this.#header === null) throw new TypeError('the history has no "run"');
    const timeOf = ({ grantedAt, invokedAt }: OperationRecord): number => grantedAt ?? invokedAt;
    return {
      header: this.#header,
      operations: [...this.#operations.values()].sort((a, b) => timeOf(a) - timeOf(b)),
      workers: this.#workers,
      faults: [...this.#faults.values()],
      register: this.#register,
      kernel: this.#kernel.sort((a, b) => a.at - b.at),
      bystanders: this.#bystanders,
      unsupported: this.#unsupported,
      leftovers: this.#leftovers,
      healedAt: this.#healedAt,
      stoppingAt: this.#stoppingAt,
      endedAt: this.#endedAt,
    };
  }
}

function startOperation(event: Extract<HistoryEvent, { event: "invoke" }>): OperationRecord {
  const { worker, op, kind, keys, permits, limit, waitMs, at } = event;
  return {
    ...{ worker, op, kind, keys, permits, limit, waitMs, invokedAt: at },
    grantedAt: null,
    tokens: null,
    heldFrom: null,
    saidUntil: null,
    wasDead: false,
    lostAt: null,
    releasingAt: null,
    releasedAt: null,
    wasHeld: null,
    endedAt: null,
    isUnknown: false,
  };
}

type OperationEvent = Extract<
  HistoryEvent,
  { event: "granted" | "asked" | "lost" | "releasing" | "released" | "refused" | "unknown" }
>;

function applyToOperation(record: OperationRecord, event: OperationEvent): void {
  switch (event.event) {
    case "granted":
      record.grantedAt = event.at;
      record.tokens = event.tokens && new Map(Object.entries(event.tokens).map(([key, token]) => [key, BigInt(token)]));
      break;
    case "asked":
      applyAnswer(record, event.at, event.leftMs);
      break;
    case "lost":
      record.lostAt ??= event.at;
      break;
    case "releasing":
      record.releasingAt = event.at;
      break;
    case "released":
      record.releasedAt = event.at;
      record.wasHeld = event.wasHeld;
      break;
    case "refused":
    case "unknown":
      record.endedAt = event.at;
      record.isUnknown = event.event === "unknown";
      break;
  }
}

function applyAnswer(record: OperationRecord, at: number, leftMs: number | null): void {
  if (leftMs === 0) {
    if (record.heldFrom === null) record.wasDead = true;
    return;
  }
  record.heldFrom ??= at;
  // the question came after `at`, so what it said ends after this
  record.saidUntil = Math.max(record.saidUntil ?? 0, at + (leftMs ?? 0) * 1_000);
}

function applyWorker(workers: Map<number, WorkerRecord>, event: Extract<NemesisEvent, { event: "worker" }>): void {
  const { worker, pid, at, phase, reason } = event;
  if (phase === "started") {
    workers.set(worker, { worker, pid, endedAt: null, wasKilled: false, reason: "", lastAt: at });
    return;
  }
  const record = workers.get(worker);
  if (record === undefined) return;
  record.endedAt ??= at;
  record.wasKilled ||= phase === "killed";
  record.reason = reason;
}

/**
 * From when to when an operation certainly believed that it held: it said so, had not been told a loss, had not begun to release, and
 * its process lived. Null: never.
 */
export function beliefOf(
  record: OperationRecord,
  workers: ReadonlyMap<number, WorkerRecord>,
): { readonly from: number; readonly to: number } | null {
  if (record.heldFrom === null || record.saidUntil === null) return null;
  const ends = [record.lostAt, record.releasingAt, workers.get(record.worker)?.endedAt].filter((at) => at != null);
  return { from: record.heldFrom, to: Math.min(record.saidUntil, ...(ends as number[])) };
}

/** Whether both may hold a key at the same time, besides others. */
export function isCompatible(a: Operation, b: Operation): boolean {
  if (a.limit === null || b.limit === null) return a.limit === b.limit;
  return a.permits + b.permits <= a.limit;
}
