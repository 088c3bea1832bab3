/**
 * One document as one process uses it: all operations that are pending are done together, by one conditional write. See the state
 * machine in driver.ts.
 */

import { randomBytes } from "node:crypto";
import { isFatalError } from "../../errors.ts";
import type { LockTable } from "../../lock-table/table.ts";
import type { Clock } from "../../util/clock.ts";
import { runInMicrotask } from "../../util/microtask.ts";
import { sleep } from "../../util/timeout.ts";
import { Draft, restoreClaims, Stopwatches } from "./draft.ts";
import type { StoredLocks } from "./format.ts";
import { encodeDocument } from "./format.ts";
import type { Layout, StoreAccess } from "./layout.ts";
import { documentName, readDocument, writeDocument } from "./layout.ts";

const MARK_BYTES = 8;
/** After so many conflicts operations fail: the client that called decides whether to call again. */
const MAX_CONFLICTS = 60;
/**
 * Before it writes to a document that others write to, a process pauses for a random time of up to so many calls, less one for each
 * conflict: one that has lost several times is faster than one that has just written.
 */
const MAX_PAUSE_CALLS = 2;
/**
 * After so many writes without a break it gives others the time of a few calls: a process that knows the document from its own last
 * write is faster than all that have to read it first, and would let none of them in.
 */
const MAX_WRITES_IN_ROW = 16;
const BREAK_CALLS = 3;
/** A call does not count as longer: if the process was stopped meanwhile, or a call timed out, the pauses stay short. */
const MAX_CALL_MS = 200;

/** What an operation is answered from: the document as written or read, and when the write was sent (null: none was needed). */
export interface Outcome {
  readonly draft: Draft;
  readonly sentAt: number | null;
}

/** Changes the draft, and returns what makes the answer. May run again, on another draft; only its last run counts. */
export type Change<T> = (draft: Draft) => (outcome: Outcome) => T;

interface Operation {
  readonly change: Change<void>;
  readonly reject: (error: unknown) => void;
  /** The document was read after it began. */
  hasRead: boolean;
}

/** What each operation of a write does, once the write is known to have happened. */
type Answers = readonly (readonly [Operation, (outcome: Outcome) => void])[];

/** A write without an answer. It can happen only as long as the document has the version that its draft was made from. */
interface UnknownWrite extends Outcome {
  readonly mark: string;
  readonly answers: Answers;
}

/** What the documents of one driver have in common. */
export interface OpenStore extends StoreAccess {
  readonly layout: Layout;
  readonly clock: Clock;
  /** The monotonic time, and the time for which this machine was suspended: for leases of this process's own claims. */
  readonly readTime: () => number;
  readonly random: () => number;
  readonly tokenBase: number;
}

export class SharedDocument {
  readonly #open: OpenStore;
  readonly #number: number;
  readonly #name: string;
  /** Called with each newer document that is known, as it is stored. */
  readonly #onDocument: (draft: Draft) => void;
  readonly #stopwatches = new Stopwatches();
  /** The newest document that was read or written. */
  #known: StoredLocks | null = null;
  /** Another version may be in the store. */
  #isOld = true;
  /** Another process has written since this one did: what is known is probably old. */
  #isShared = false;
  #pending: Operation[] = [];
  /** Writes whose outcome is unknown: one may have happened, or may still happen. */
  #unknownWrites: UnknownWrite[] = [];
  #isWorking = false;
  /** How long the last write took, when it ended, and how many before it followed each other without a break. */
  #lastCallMs = 0;
  #lastCallAt = 0;
  #writesInRow = 0;

  constructor(open: OpenStore, number: number, onDocument: (draft: Draft) => void) {
    this.#open = open;
    this.#number = number;
    this.#name = `${open.store.name}: the document ${documentName(number, open.layout)}`;
    this.#onDocument = onDocument;
  }

  /** Does the operation, together with the others of this turn. */
  run<T>(change: Change<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#pending.push({
        change(draft) {
          const answer = change(draft);
          return (outcome) => resolve(answer(outcome));
        },
        reject,
        hasRead: false,
      });
      if (this.#isWorking) return;
      this.#isWorking = true;
      runInMicrotask(() => void this.#work());
    });
  }

  /** Reads the document, and adds its claims to a table for a list: writes nothing. */
  async addTo(table: LockTable, signal?: AbortSignal): Promise<void> {
    const { document } = await this.#fetch(signal);
    const now = this.#open.clock.now();
    this.#stopwatches.observe(document, now);
    table.advance({ now, micros: 1 });
    restoreClaims(table, document, this.#stopwatches, now, this.#open.tokenBase);
  }

  /** The document may have changed. */
  refresh(): void {
    this.run(() => () => undefined).catch(() => undefined); // the waiting claims ask again anyway
  }

  async #work(): Promise<void> {
    for (let conflicts = 0; this.#pending.length > 0; ) {
      await this.#pause(conflicts);
      const operations = [...this.#pending];
      try {
        conflicts = (await this.#attempt()) ? conflicts + 1 : 0;
        if (conflicts === MAX_CONFLICTS)
          throw new Error(`${this.#name}: other processes wrote it first, ${MAX_CONFLICTS} times`);
      } catch (error) {
        conflicts = 0;
        this.#remove(operations); // not those that came meanwhile
        for (const { reject } of operations) reject(error);
      }
    }
    this.#isWorking = false;
  }

  /** Reads, or writes, once for all pending operations. Returns whether the write was a conflict, or is unknown. */
  async #attempt(): Promise<boolean> {
    const isStale = this.#isShared && this.#pending.some(({ hasRead }) => !hasRead);
    const draft = this.#known === null || this.#isOld || isStale ? await this.#read() : this.#makeDraft(this.#known);
    draft.start();
    const answers = this.#pending.map((operation) => [operation, apply(operation, draft)] as const);
    if (draft.hasChanged) return this.#write(draft, answers);
    const fresh = answers.filter(([{ hasRead }]) => hasRead);
    this.#answer(fresh, { draft, sentAt: null });
    this.#isOld = fresh.length < answers.length;
    return false;
  }

  async #write(draft: Draft, answers: Answers): Promise<boolean> {
    const { clock, readTime } = this.#open;
    const mark = randomBytes(MARK_BYTES).toString("base64url");
    const document = draft.finish(mark);
    const bytes = encodeDocument(document);
    const outcome = { draft, sentAt: readTime() };
    const startedAt = clock.now();
    this.#isOld = true;
    try {
      const result = await writeDocument(
        this.#open,
        documentName(this.#number, this.#open.layout),
        bytes,
        draft.base.version,
      );
      if (result === "conflict") return true;
      this.#accept({ document, version: result.version, byteCount: bytes.length });
    } catch (error) {
      if (isFatalError(error)) throw error;
      this.#unknownWrites.push({ ...outcome, mark, answers });
      return true;
    } finally {
      this.#writesInRow = startedAt - this.#lastCallAt < this.#lastCallMs ? this.#writesInRow + 1 : 0;
      this.#lastCallAt = clock.now();
      this.#lastCallMs = Math.min(this.#lastCallAt - startedAt, MAX_CALL_MS);
    }
    this.#unknownWrites = []; // none of them can happen any more
    this.#answer(answers, outcome);
    this.#onDocument(draft);
    return false;
  }

  /** Returns a draft that is not started. */
  async #read(): Promise<Draft> {
    const operations = [...this.#pending];
    const stored = await this.#fetch();
    for (const operation of operations) operation.hasRead = true;
    this.#isShared = this.#known !== null && stored.version !== this.#known.version;
    this.#accept(stored);
    for (const write of this.#unknownWrites)
      if (stored.document.marks.includes(write.mark)) this.#answer(write.answers, write);
    this.#unknownWrites = this.#unknownWrites.filter(({ draft }) => draft.base.version === stored.version);
    const draft = this.#makeDraft(stored);
    this.#onDocument(draft);
    return draft;
  }

  async #fetch(signal?: AbortSignal): Promise<StoredLocks> {
    // a write that is answered meanwhile may be newer
    const newestWrite = this.#known?.document.writeNumber ?? 0;
    const stored = await readDocument(this.#open, this.#open.layout, this.#number, signal);
    // a lagging replica: its answer would say that what was granted since does not exist
    if (stored.document.writeNumber < newestWrite)
      throw new Error(`${this.#name}: it was read in an older state than before`);
    return stored;
  }

  #accept(stored: StoredLocks): void {
    this.#known = stored;
    this.#isOld = false;
    this.#stopwatches.observe(stored.document, this.#open.clock.now());
  }

  #makeDraft(stored: StoredLocks): Draft {
    const { clock, tokenBase } = this.#open;
    return new Draft(this.#name, stored, this.#stopwatches, clock.now(), tokenBase);
  }

  #answer(answers: Answers, outcome: Outcome): void {
    this.#remove(answers.map(([operation]) => operation));
    for (const [, answer] of answers) answer(outcome);
  }

  #remove(operations: readonly Operation[]): void {
    const removed = new Set(operations);
    this.#pending = this.#pending.filter((operation) => !removed.has(operation));
  }

  async #pause(conflicts: number): Promise<void> {
    const { clock, random } = this.#open;
    const needsBreak = this.#writesInRow >= MAX_WRITES_IN_ROW;
    if (needsBreak) this.#writesInRow = 0;
    const randomCalls = this.#isShared ? random() * (MAX_PAUSE_CALLS - conflicts) : 0;
    const ms = (needsBreak ? BREAK_CALLS : randomCalls) * this.#lastCallMs;
    if (ms > 0) await sleep(clock, ms);
  }
}

/** An operation that is refused fails alone. */
function apply({ change, reject }: Operation, draft: Draft): (outcome: Outcome) => void {
  try {
    return change(draft);
  } catch (error) {
    return () => reject(error);
  }
}
