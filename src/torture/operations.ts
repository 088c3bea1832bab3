/** The operations of a history, put together from their events: what each one asked for, and from when to when it held. */

import type { HistoryEvent, NemesisEvent, Operation, RegisterEvent, RunHeader, WorkerEvent } from "./history.ts";
import { RunTime } from "./run-time.ts";

/** One attempt to get a lock. Times in microseconds; null: it has not happened. */
export interface OperationRecord extends Operation {
  readonly worker: number;
  readonly invokedAt: number;
  grantedAt: number | null;
  /** By key; null: the subject has none. */
  tokens: ReadonlyMap<string, bigint> | null;
  /** When it was first asked whether it holds, and said yes. */
  heldFrom: number | null;
  /** Until when it has said that it holds, by its last answer. */
  saidUntil: number | null;
  /** The end of the lease, by its last answer; null: it does not say. */
  leaseEndsAt: number | null;
  /** When it first said no, after it had said yes. It may say yes again, once the store has confirmed it. */
  deniedAt: number | null;
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
  pid: number;
  endedAt: number | null;
  wasKilled: boolean;
  /** Why it ended; empty: normally. */
  reason: string;
  /** Its last report. */
  lastAt: number;
  readonly runTime: RunTime;
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
  /** It has all phases of a run. */
  readonly isComplete: boolean;
  readonly endedAt: number;
}

/** The name of an operation in a history. */
export function operationId({ worker, op }: { readonly worker: number; readonly op: number }): string {
  return `${worker}/${op}`;
}

/** @throws TypeError if the history has no header, an event of an operation that was never invoked, or one invoked twice */
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
  #isComplete = false;
  #healedAt: number | null = null;
  #stoppingAt: number | null = null;
  #endedAt = 0;

  add(event: HistoryEvent): void {
    if (event.event === "run") {
      this.#header = event;
      return;
    }
    this.#endedAt = Math.max(this.#endedAt, event.at);
    if (event.event === "worker") applyWorker(this.#workerOf(event.worker), event);
    else if (event.event === "enter" || event.event === "write") this.#register.push(event);
    else if ("worker" in event) this.#addOfWorker(event);
    else this.#addOfNemesis(event);
  }

  /** The first report of a worker may come before that of its start. */
  #workerOf(worker: number): WorkerRecord {
    let record = this.#workers.get(worker);
    if (record === undefined) {
      record = { worker, pid: 0, endedAt: null, wasKilled: false, reason: "", lastAt: 0, runTime: new RunTime() };
      this.#workers.set(worker, record);
    }
    return record;
  }

  #addOfWorker(event: WorkerEvent): void {
    const worker = this.#workerOf(event.worker);
    worker.lastAt = Math.max(worker.lastAt, event.at);
    worker.runTime.add(event.at);
    switch (event.event) {
      case "runs":
        break;
      case "invoke": {
        const id = operationId(event);
        if (this.#operations.has(id)) throw new TypeError(`the history has two "invoke" of operation ${id}`);
        this.#operations.set(id, startOperation(event));
        break;
      }
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
        this.#isComplete = this.#healedAt !== null && this.#stoppingAt !== null;
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
      isComplete: this.#isComplete,
      endedAt: this.#endedAt,
    };
  }
}

function startOperation(event: Extract<HistoryEvent, { event: "invoke" }>): OperationRecord {
  const { worker, op, kind, keys, permits, limit, waitMs, at } = event;
  return {
    worker,
    op,
    kind,
    keys,
    permits,
    limit,
    waitMs,
    invokedAt: at,
    grantedAt: null,
    tokens: null,
    heldFrom: null,
    saidUntil: null,
    leaseEndsAt: null,
    deniedAt: null,
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
    else record.deniedAt ??= at;
    return;
  }
  record.heldFrom ??= at;
  // the question came after `at`, so what it said ends after this
  record.saidUntil = at + (leftMs ?? 0) * 1_000;
  record.leaseEndsAt = leftMs === null ? null : record.saidUntil;
}

function applyWorker(record: WorkerRecord, event: Extract<NemesisEvent, { event: "worker" }>): void {
  if (event.phase === "started") {
    record.pid = event.pid;
    return;
  }
  record.endedAt ??= event.at;
  record.wasKilled ||= event.phase === "killed";
  record.reason = event.reason;
}

/**
 * From when to when an operation certainly believed that it held: it said so, had neither been told a loss nor said no, had not begun
 * to release, and its process lived. Null: never.
 */
export function beliefOf(
  record: OperationRecord,
  workers: ReadonlyMap<number, WorkerRecord>,
): { readonly from: number; readonly to: number } | null {
  const { heldFrom, saidUntil } = record;
  if (heldFrom === null || saidUntil === null) return null;
  const to = Math.min(
    saidUntil,
    record.deniedAt ?? saidUntil,
    record.lostAt ?? saidUntil,
    record.releasingAt ?? saidUntil,
    diedAt(workers.get(record.worker)) ?? saidUntil,
  );
  return to > heldFrom ? { from: heldFrom, to } : null;
}

/** The last moment at which a process that has ended certainly lived: before it was killed, or its last report. */
function diedAt(worker: WorkerRecord | undefined): number | null {
  if (worker === undefined || worker.endedAt === null) return null;
  return worker.wasKilled ? worker.endedAt : worker.lastAt;
}

/** Takes all permits. */
export function isExclusive({ permits, limit }: Operation): boolean {
  return permits === limit;
}

/** Whether both may hold a key at the same time, besides others. */
export function isCompatible(a: Operation, b: Operation): boolean {
  if (a.limit === null || b.limit === null) return a.limit === b.limit;
  return a.permits + b.permits <= a.limit;
}
