/** A store of documents in memory, for the document driver: each call takes a turn, and can be made to fail in every way it may. */

import { setImmediate as nextTurn } from "node:timers/promises";
import { decodeDocument } from "../../../src/drivers/document/format.ts";
import type { DocumentStore, StoredDocument, WriteResult } from "../../../src/drivers/document/store.ts";
import { countAdmitted } from "../../../src/lock-table/admission.ts";

/** What happens to a call. */
export type CallFault =
  | "conflict" // nothing is written, although nobody else wrote
  | "lostCall" // it does not reach the store
  | "lostReply" // it was done, and its answer is lost
  | "stale"; // a read of the version before, which no store may answer

export class MemoryDocuments {
  readonly documents: Map<string, StoredDocument> = new Map();
  readonly #previous = new Map<string, StoredDocument>();
  readonly #watchers = new Set<{ readonly name: string; readonly changed: () => void }>();
  reads = 0;
  writes = 0;
  conflicts = 0;
  #versions = 0;
  /** Decides on the fault of a call; undefined: none. */
  onCall: (call: "read" | "write", name: string) => CallFault | undefined = () => undefined;
  /** Called after each write. */
  onWritten: () => void = () => undefined;
  /** How long a call takes each way. */
  pass: () => Promise<unknown> = () => nextTurn();

  get watcherCount(): number {
    return this.#watchers.size;
  }

  /** A client of it. */
  client({ canWatch = false }: { readonly canWatch?: boolean } = {}): DocumentStore {
    const store: DocumentStore = {
      name: "memory-documents",
      read: (name) => this.#read(name),
      write: (name, bytes, version) => this.#write(name, bytes, version),
    };
    return canWatch ? { ...store, watch: (name, changed) => this.#watch(name, changed) } : store;
  }

  /** Replaces the bytes by hand. */
  put(name: string, bytes: Uint8Array): void {
    this.documents.set(name, { bytes: Uint8Array.from(bytes), version: String(++this.#versions) });
  }

  async #read(name: string): Promise<StoredDocument | null> {
    this.reads++;
    const fault = this.onCall("read", name);
    await this.pass();
    if (fault === "lostCall") throw new Error("the read was lost");
    const stored = (fault === "stale" ? this.#previous.get(name) : undefined) ?? this.documents.get(name) ?? null;
    await this.pass();
    if (fault === "lostReply") throw new Error("the answer to the read was lost");
    return stored === null ? null : { bytes: Uint8Array.from(stored.bytes), version: stored.version };
  }

  async #write(name: string, bytes: Uint8Array, version: string | null): Promise<WriteResult> {
    const fault = this.onCall("write", name);
    const copy = Uint8Array.from(bytes);
    await this.pass();
    if (fault === "lostCall") throw new Error("the write was lost");
    const result = fault === "conflict" ? "conflict" : this.#replace(name, copy, version);
    await this.pass();
    if (fault === "lostReply") throw new Error("the answer to the write was lost");
    return result;
  }

  #replace(name: string, bytes: Uint8Array, version: string | null): WriteResult {
    const existing = this.documents.get(name) ?? null;
    if ((existing?.version ?? null) !== version) {
      this.conflicts++;
      return "conflict";
    }
    this.writes++;
    if (existing !== null) this.#previous.set(name, existing);
    this.put(name, bytes);
    for (const watcher of this.#watchers) if (watcher.name === name) setImmediate(watcher.changed);
    this.onWritten();
    return { version: String(this.#versions) };
  }

  #watch(name: string, changed: () => void): () => void {
    const watcher = { name, changed };
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  /** The keys of all entries. */
  listEntries(): readonly string[] {
    return [...this.documents].flatMap(([name, { bytes }]) =>
      decodeDocument(bytes, name).queues.flatMap(([key, entries]) => entries.map(() => key)),
    );
  }

  /** What is wrong in the documents, which it reads without a driver; empty: nothing is. */
  findViolations(): readonly string[] {
    return [...this.documents].flatMap(([name, { bytes }]) => findDocumentViolations(name, bytes));
  }
}

export function findDocumentViolations(name: string, bytes: Uint8Array): readonly string[] {
  const violations: string[] = [];
  const { queues, lastToken } = decodeDocument(bytes, name);
  for (const [key, entries] of queues) {
    const admitted = countAdmitted(entries.map(([, , , permits, limit]) => ({ permits, limit })));
    let free = 1;
    for (const [index, entry] of entries.entries()) {
      const [tokenCount, token] = [entry[6], entry[12]];
      if ((token !== 0) !== index < admitted) violations.push(`${name}: entry ${index} of "${key}" has token ${token}`);
      if (token === 0) continue;
      if (token < free) violations.push(`${name}: token ${token} of "${key}" was granted twice`);
      free = token + tokenCount;
    }
    if (free > lastToken + 1) violations.push(`${name}: its last token is ${lastToken}, and ${free - 1} was granted`);
  }
  return violations;
}
