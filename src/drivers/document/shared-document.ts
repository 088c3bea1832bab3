/**
 * One document as one process uses it: all operations that are pending are done together, by one conditional write. See the state
 * machine in driver.ts.
 */

import { randomBytes } from "node:crypto";
import { isFatalError } from "../../errors.ts";
import type { Clock } from "../../util/clock.ts";
import { runInMicrotask } from "../../util/microtask.ts";
import { sleep } from "../../util/timeout.ts";
import { Draft } from "./draft.ts";
import type { LockDocument } from "./format.ts";
import { encodeDocument } from "./format.ts";
import { Stopwatches } from "./stopwatches.ts";
import type { StoredDocument } from "./store.ts";
import type { StoreCalls } from "./store-calls.ts";

const MARK_BYTES = 8;
/** After so many conflicts an operation fails: the client that called decides whether to call again. */
const MAX_ATTEMPTS = 60;
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
  readonly document: LockDocument;
  readonly sentAt: number | null;
}

/** Changes the draft, and returns what makes the answer. May run again, on another draft; only its last run counts. */
export type Change<T> = (draft: Draft, now: number) => (outcome: Outcome) => T;

interface Operation {
  readonly change: Change<void>;
  readonly reject: (error: unknown) => void;
  /** Reads that were sent before it began are too old to answer it. */
  readonly firstRead: number;
  attempts: number;
}

/** A write that was sent. */
interface Write {
  readonly document: LockDocument;
  readonly mark: string;
  /** It can happen only as long as the document has this version. */
  readonly baseVersion: string;
  readonly sentAt: number;
  /** What to tell each operation, once the write is known to have happened. */
  readonly answers: ReadonlyMap<Operation, (outcome: Outcome) => void>;
}

export interface SharedDocumentSettings {
  readonly name: string;
  readonly calls: StoreCalls;
  readonly clock: Clock;
  /** The monotonic time, and the time for which this machine was suspended: for leases of this process's own claims. */
  readonly readTime: () => number;
  readonly random: () => number;
  /** @throws StoreRefusedError if it is none of this store's documents */
  readonly verify: (stored: StoredDocument | null) => LockDocument;
  /** A newer document is known. */
  readonly onDocument: (document: LockDocument) => void;
}

export class SharedDocument {
  readonly stopwatches: Stopwatches = new Stopwatches();
  readonly #settings: SharedDocumentSettings;
  /** The newest document that is known, and the number of the read that brought it. */
  #known: { readonly document: LockDocument; readonly version: string } | null = null;
  #knownByRead = 0;
  #reads = 0;
  #newestWrite = 0;
  /** Another process has written since this one did: what is known is probably old. */
  #isShared = false;
  #pending: Operation[] = [];
  /** Writes whose outcome is unknown: one may have happened, or may still happen. */
  #unknownWrites: Write[] = [];
  #isWorking = false;
  /** How long the last write took, when it ended, and how many before it followed each other without a break. */
  #lastCallMs = 0;
  #lastCallAt = 0;
  #writesInRow = 0;

  constructor(settings: SharedDocumentSettings) {
    this.#settings = settings;
  }

  /** Does the operation, together with the others of this turn. */
  run<T>(change: Change<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#pending.push({
        change(draft, now) {
          const answer = change(draft, now);
          return (outcome) => resolve(answer(outcome));
        },
        reject,
        firstRead: this.#reads + 1,
        attempts: 0,
      });
      if (this.#isWorking) return;
      this.#isWorking = true;
      runInMicrotask(() => void this.#work());
    });
  }

  /** Reads the document for a list: writes nothing. */
  async look(signal?: AbortSignal): Promise<LockDocument> {
    const { document } = await this.#fetch(signal);
    this.stopwatches.observe(document, this.#settings.clock.now());
    return document;
  }

  /** The document may have changed. */
  refresh(): void {
    this.run(() => () => undefined).catch(() => undefined); // the waiting claims ask again anyway
  }

  async #work(): Promise<void> {
    for (let conflicts = 0; this.#pending.length > 0; ) {
      await this.#pause(conflicts);
      for (const operation of this.#pending) operation.attempts++;
      try {
        conflicts = (await this.#attempt()) ? conflicts + 1 : 0;
      } catch (error) {
        this.#reject(({ attempts }) => attempts > 0, error); // not those that came meanwhile
      }
      const message = `${this.#settings.name}: other processes wrote it first, ${MAX_ATTEMPTS} times`;
      this.#reject(({ attempts }) => attempts >= MAX_ATTEMPTS, new Error(message));
    }
    this.#isWorking = false;
  }

  /** Reads, or writes, once for all pending operations. Returns whether the write was a conflict, or is unknown. */
  async #attempt(): Promise<boolean> {
    const isOld = this.#pending.some(({ firstRead }) => firstRead > this.#knownByRead);
    if (this.#known === null || (this.#isShared && isOld)) await this.#read();
    if (this.#known === null) return false;
    const { document, version } = this.#known;
    const now = this.#settings.clock.now();
    const draft = new Draft(document);
    draft.removeOver(this.stopwatches, now);
    const answers = new Map(this.#pending.map((operation) => [operation, apply(operation, draft, now)]));
    draft.admit();
    if (draft.hasChanged) return this.#write(draft, version, answers);
    const fresh = [...answers].filter(([{ firstRead }]) => firstRead <= this.#knownByRead);
    this.#answer(fresh, { document, sentAt: null });
    if (fresh.length < answers.size) await this.#read();
    return false;
  }

  async #write(draft: Draft, baseVersion: string, answers: Write["answers"]): Promise<boolean> {
    const { name, calls, readTime } = this.#settings;
    const mark = randomBytes(MARK_BYTES).toString("hex");
    const document = draft.finish(mark);
    const write = { document, mark, baseVersion, sentAt: readTime(), answers };
    const result = await this.#time(calls.write(name, encodeDocument(document), baseVersion)).catch(
      (error: unknown) => {
        if (isFatalError(error)) throw error;
        this.#unknownWrites.push(write);
        return null;
      },
    );
    if (result === null || result === "conflict") {
      this.#isShared ||= result !== null;
      this.#known = null;
      return true;
    }
    this.#accept(document, result.version);
    this.#unknownWrites = []; // none of them can happen any more
    this.#answer([...answers], { document, sentAt: write.sentAt });
    this.#settings.onDocument(document);
    return false;
  }

  async #time<T>(call: Promise<T>): Promise<T> {
    const { clock } = this.#settings;
    const startedAt = clock.now();
    try {
      return await call;
    } finally {
      this.#writesInRow = startedAt - this.#lastCallAt < this.#lastCallMs ? this.#writesInRow + 1 : 0;
      this.#lastCallAt = clock.now();
      this.#lastCallMs = Math.min(this.#lastCallAt - startedAt, MAX_CALL_MS);
    }
  }

  async #read(): Promise<void> {
    const number = ++this.#reads;
    const { document, version } = await this.#fetch();
    if (this.#known !== null) this.#isShared = version !== this.#known.version;
    this.#knownByRead = number;
    this.#accept(document, version);
    const unknownWrites = this.#unknownWrites;
    this.#unknownWrites = unknownWrites.filter(({ baseVersion }) => baseVersion === version);
    for (const write of unknownWrites) if (document.marks.includes(write.mark)) this.#answer([...write.answers], write);
    this.#settings.onDocument(document);
  }

  async #fetch(signal?: AbortSignal): Promise<{ readonly document: LockDocument; readonly version: string }> {
    const { name, calls, verify } = this.#settings;
    // a write that is answered meanwhile may be newer
    const newestWrite = this.#newestWrite;
    const stored = await calls.read(name, signal);
    if (stored !== null && stored.version === this.#known?.version) return this.#known;
    const document = verify(stored);
    // a lagging replica: its answer would say that what was granted since does not exist
    if (document.writeNumber < newestWrite) throw new Error(`${name}: it was read in an older state than before`);
    return { document, version: (stored as StoredDocument).version };
  }

  #accept(document: LockDocument, version: string): void {
    this.#known = { document, version };
    this.#newestWrite = document.writeNumber;
    this.stopwatches.observe(document, this.#settings.clock.now());
  }

  #answer(answers: readonly (readonly [Operation, (outcome: Outcome) => void])[], outcome: Outcome): void {
    const answered = new Set(answers.map(([operation]) => operation));
    this.#pending = this.#pending.filter((operation) => !answered.has(operation));
    for (const [, answer] of answers) answer(outcome);
  }

  #reject(isRejected: (operation: Operation) => boolean, error: unknown): void {
    const rejected = this.#pending.filter(isRejected);
    this.#pending = this.#pending.filter((operation) => !isRejected(operation));
    for (const { reject } of rejected) reject(error);
  }

  async #pause(conflicts: number): Promise<void> {
    const { clock, random } = this.#settings;
    const needsBreak = this.#writesInRow >= MAX_WRITES_IN_ROW;
    if (needsBreak) this.#writesInRow = 0;
    const randomCalls = this.#isShared ? random() * (MAX_PAUSE_CALLS - conflicts) : 0;
    const ms = (needsBreak ? BREAK_CALLS : randomCalls) * this.#lastCallMs;
    if (ms > 0) await sleep(clock, ms);
  }
}

/** An operation that is refused fails alone. */
function apply({ change, reject }: Operation, draft: Draft, now: number): (outcome: Outcome) => void {
  try {
    return change(draft, now);
  } catch (error) {
    return () => reject(error);
  }
}
