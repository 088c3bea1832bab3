/**
 * The history of a run: what the workers asked for and were told, what the register accepted, and which faults were injected. One JSON
 * object a line; the order of the lines is the order in which the register received them.
 */

import { closeSync, openSync, readSync } from "node:fs";
import { StringDecoder } from "node:string_decoder";

/** The first line says this; another format is refused. */
export const HISTORY_FORMAT = 1;

/** Microseconds since the start of the run, on the machine's monotonic clock, which all processes share. */
type Micros = number;

/** What an operation asks for: how the lock is taken, beside its mode. */
export const OPERATION_KINDS = ["mutex", "strict", "cached", "several", "reader", "permits", "leader"] as const;
export type OperationKind = (typeof OPERATION_KINDS)[number];

/** One attempt of a worker to get a lock. */
export interface Operation {
  /** Unique within its worker. */
  readonly op: number;
  readonly kind: OperationKind;
  readonly keys: readonly string[];
  /** Of `limit`: 1 of 1 is exclusive. A reader takes one of as many as it likes: limit null. */
  readonly permits: number;
  readonly limit: number | null;
  /** The longest wait, in milliseconds. */
  readonly waitMs: number;
}

interface OfWorker {
  readonly at: Micros;
  readonly worker: number;
}

interface OfOperation extends OfWorker {
  readonly op: number;
}

interface OfRegister {
  readonly worker: number;
  readonly op: number;
  readonly key: string;
  /** The fencing token in decimal; null: the subject has none. */
  readonly token: string | null;
}

/** What a worker reports. */
export type WorkerEvent =
  | (OfWorker & { readonly event: "invoke" } & Operation)
  /** The subject says that it holds the lock. */
  | (OfOperation & { readonly event: "granted"; readonly tokens: Readonly<Record<string, string>> | null })
  /**
   * What the subject answered when it was asked whether it holds the lock, `leftMs` milliseconds from `at` on; 0: it does not.
   * null: it says that it holds it, and not for how long. `at` is before the question.
   */
  | (OfOperation & { readonly event: "asked"; readonly leftMs: number | null })
  /** The subject has told the loss. */
  | (OfOperation & { readonly event: "lost"; readonly reason: string })
  | (OfOperation & { readonly event: "releasing" })
  /** wasHeld null: the release failed. */
  | (OfOperation & { readonly event: "released"; readonly wasHeld: boolean | null })
  /** It was certainly not granted. */
  | (OfOperation & { readonly event: "refused"; readonly reason: string })
  /** It failed, and may have been granted. */
  | (OfOperation & { readonly event: "unknown"; readonly reason: string })
  /** What flock(1) has said on the file of a key; `at` is after its answer. */
  | (OfOperation & { readonly event: "kernel"; readonly key: string; readonly taken: boolean })
  | (OfOperation & { readonly event: "unlocked"; readonly key: string })
  /** This worker's client will never be able to do operations of this kind. */
  | (OfWorker & { readonly event: "unsupported"; readonly kind: OperationKind; readonly reason: string })
  /** Its event loop runs. Reported all the time, so that a process that was stopped can be told from one that does nothing. */
  | (OfWorker & { readonly event: "runs" });

/** What a worker asks of the register. */
export type RegisterRequest =
  | (OfRegister & { readonly event: "enter" })
  /** `base`: the value of the unfenced register when the section began. */
  | (OfRegister & { readonly event: "write"; readonly base: number });

/** What the register did: by the token (fenced), and without looking at it (unfenced). */
export interface RegisterReply {
  readonly worker: number;
  readonly op: number;
  /** The fenced register refuses a token below the highest that it has seen. */
  readonly accepted: boolean;
  /** The value of the unfenced register before the request. */
  readonly value: number;
}

/** `at`: when the register did it, which may be long after the worker sent it. */
export type RegisterEvent = RegisterRequest & { readonly at: Micros } & Pick<RegisterReply, "accepted" | "value">;

/** What the nemesis reports. */
export type NemesisEvent =
  | {
      readonly event: "fault";
      readonly at: Micros;
      readonly fault: string;
      readonly phase: "begin" | "end";
      /** The same for begin and end. */
      readonly id: number;
      /** The workers that it strikes; null: all, as a fault of the store does. */
      readonly workers: readonly number[] | null;
    }
  | {
      readonly event: "worker";
      readonly at: Micros;
      readonly worker: number;
      readonly pid: number;
      readonly phase: "started" | "killed" | "ended";
      /** Why it ended: empty for a normal end. */
      readonly reason: string;
    }
  /** From here on no fault strikes, all are repaired, and the store grants locks again, unless that takes too long. */
  | { readonly event: "healed"; readonly at: Micros }
  /** The workers begin nothing any more. */
  | { readonly event: "stopping"; readonly at: Micros }
  /** Claims with the run's prefix that are still in the store after two leases; null: it cannot be asked. */
  | { readonly event: "leftovers"; readonly at: Micros; readonly count: number | null }
  /** How long a lock on a key of its own took, from a process that no fault strikes; null: it failed. */
  | { readonly event: "bystander"; readonly at: Micros; readonly ms: number | null };

/** The first line. */
export interface RunHeader {
  readonly event: "run";
  readonly format: typeof HISTORY_FORMAT;
  readonly seed: number;
  /** The subject and its version, and the store. */
  readonly subject: string;
  readonly store: string;
  readonly ttlMs: number;
  readonly workers: number;
  readonly seconds: number;
  readonly faults: readonly string[];
  readonly versions: Readonly<Record<string, string>>;
}

export type HistoryEvent = RunHeader | WorkerEvent | RegisterEvent | NemesisEvent;

/** What each event must have. */
const NUMBER = (value: unknown): boolean => typeof value === "number" && value >= 0;
const NUMBER_OR_NULL = (value: unknown): boolean => value === null || NUMBER(value);
const TEXT = (value: unknown): boolean => typeof value === "string";
const FLAG = (value: unknown): boolean => typeof value === "boolean";
const TOKEN = (value: unknown): boolean => typeof value === "string" && /^\d{1,30}$/.test(value);
const OF_OPERATION = { at: NUMBER, worker: NUMBER, op: NUMBER };
const OF_REGISTER = {
  ...OF_OPERATION,
  key: TEXT,
  token: (value: unknown) => value === null || TOKEN(value),
  accepted: FLAG,
  value: NUMBER,
};
const FIELDS: Readonly<Record<HistoryEvent["event"], Readonly<Record<string, (value: unknown) => boolean>>>> = {
  run: { seed: NUMBER, subject: TEXT, store: TEXT, ttlMs: NUMBER, workers: NUMBER, seconds: NUMBER },
  invoke: {
    ...OF_OPERATION,
    kind: TEXT,
    keys: (value) => Array.isArray(value) && value.length > 0 && value.every(TEXT),
    permits: NUMBER,
    limit: NUMBER_OR_NULL,
    waitMs: NUMBER,
  },
  granted: {
    ...OF_OPERATION,
    tokens: (value) => value === null || (typeof value === "object" && Object.values(value).every(TOKEN)),
  },
  asked: { ...OF_OPERATION, leftMs: NUMBER_OR_NULL },
  lost: { ...OF_OPERATION, reason: TEXT },
  releasing: OF_OPERATION,
  released: { ...OF_OPERATION, wasHeld: (value) => value === null || FLAG(value) },
  refused: { ...OF_OPERATION, reason: TEXT },
  unknown: { ...OF_OPERATION, reason: TEXT },
  kernel: { ...OF_OPERATION, key: TEXT, taken: FLAG },
  unlocked: { ...OF_OPERATION, key: TEXT },
  unsupported: { at: NUMBER, worker: NUMBER, kind: TEXT, reason: TEXT },
  runs: { at: NUMBER, worker: NUMBER },
  enter: OF_REGISTER,
  write: { ...OF_REGISTER, base: NUMBER },
  fault: {
    at: NUMBER,
    fault: TEXT,
    phase: TEXT,
    id: NUMBER,
    workers: (value) => value === null || (Array.isArray(value) && value.every(NUMBER)),
  },
  worker: { at: NUMBER, worker: NUMBER, pid: NUMBER, phase: TEXT, reason: TEXT },
  healed: { at: NUMBER },
  stopping: { at: NUMBER },
  leftovers: { at: NUMBER, count: NUMBER_OR_NULL },
  bystander: { at: NUMBER, ms: NUMBER_OR_NULL },
};

/**
 * The events of a history, one at a time: a long one has millions. A last line without its end is left out, since a run that was
 * cut short leaves one. @param parts its text, in parts of any length
 * @throws TypeError for another format, and for a line that is no event
 */
export function* parseHistory(parts: Iterable<string>): Generator<HistoryEvent, void, undefined> {
  let line = 0;
  let rest = "";
  for (const part of parts) {
    const text = rest + part;
    let start = 0;
    for (let end = text.indexOf("\n"); end !== -1; end = text.indexOf("\n", start)) {
      line++;
      if (end > start) yield parseEvent(text.slice(start, end), line);
      start = end + 1;
    }
    rest = text.slice(start);
  }
  if (line === 0) throw new TypeError("the history is empty");
}

const PART_BYTES = 1_048_576;

/** The same of a file, of which only a part is in memory at a time. */
export function readHistory(path: string): Generator<HistoryEvent, void, undefined> {
  return parseHistory(readParts(path));
}

function* readParts(path: string): Generator<string> {
  const file = openSync(path, "r");
  const decoder = new StringDecoder("utf8");
  const buffer = Buffer.alloc(PART_BYTES);
  try {
    for (let length = readSync(file, buffer); length > 0; length = readSync(file, buffer))
      yield decoder.write(buffer.subarray(0, length));
  } finally {
    closeSync(file);
  }
}

function parseEvent(text: string, line: number): HistoryEvent {
  let event: Partial<HistoryEvent> & Readonly<Record<string, unknown>>;
  try {
    event = JSON.parse(text) as typeof event;
  } catch (error) {
    throw new TypeError(`line ${line} of the history is no JSON`, { cause: error });
  }
  if (line === 1 && (event?.event !== "run" || event.format !== HISTORY_FORMAT))
    throw new TypeError(`the history must have format ${HISTORY_FORMAT}`);
  const name = event?.event;
  if (typeof name !== "string" || !Object.hasOwn(FIELDS, name))
    throw new TypeError(`line ${line} of the history is no event`);
  const fields = FIELDS[name];
  for (const field in fields)
    if (fields[field]?.(event[field]) !== true)
      throw new TypeError(`line ${line} of the history: "${field}" of "${name}" is not as it must be`);
  return event as HistoryEvent;
}
