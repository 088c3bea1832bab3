/**
 * The history of a run: what the workers asked for and were told, what the register accepted, and which faults were injected. One JSON
 * object a line; the order of the lines is the order in which the register received them.
 */

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

interface OfRegister extends OfOperation {
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
  /** What flock(1) said on the file of a key. */
  | (OfOperation & { readonly event: "kernel"; readonly key: string; readonly taken: boolean })
  | (OfOperation & { readonly event: "unlocked"; readonly key: string })
  /** This worker's client will never be able to do operations of this kind. */
  | (OfWorker & { readonly event: "unsupported"; readonly kind: OperationKind; readonly reason: string });

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

export type RegisterEvent = RegisterRequest & Pick<RegisterReply, "accepted" | "value">;

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
  /** From here on no fault strikes, and all are repaired. */
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

/** The events of a history. @throws SyntaxError if a line is no JSON; TypeError for another format */
export function parseHistory(text: string): HistoryEvent[] {
  const events: HistoryEvent[] = [];
  for (const [index, line] of text.split("\n").entries()) {
    if (line === "") continue;
    const event = JSON.parse(line) as HistoryEvent;
    if (index === 0 && (event.event !== "run" || event.format !== HISTORY_FORMAT))
      throw new TypeError(`the history must have format ${HISTORY_FORMAT}`);
    events.push(event);
  }
  return events;
}
