/** What a store must be able to do so that the document driver can keep locks in it: a conditional write. */

import type { Check } from "../../spi/driver.ts";

/** The longest document. A claim that would make one longer is refused. */
export const MAX_DOCUMENT_BYTES: number = 256 * 1_024;

/** A document as it was read. */
export interface StoredDocument {
  readonly bytes: Uint8Array;
  /** Changes with every write, and is never used again for other bytes: a revision, an ETag, a version number. */
  readonly version: string;
}

/** The result of a write: its version; "conflict": the document has another version, and nothing was written. */
export type WriteResult = { readonly version: string } | "conflict";

/**
 * A store with a conditional write. A thrown error means that the outcome is unknown: the driver reads, and finds its own write by
 * a random mark in the document. Throw StoreRefusedError if a repetition cannot succeed (a missing right, a missing table).
 * Names of documents are 1 to 64 characters of a-z, 0-9 and "-". A document is at most MAX_DOCUMENT_BYTES long.
 */
export interface DocumentStore {
  /** Shown in messages and as the name of the driver: "s3", "nats". */
  readonly name: string;

  /** Optional: connects, and checks what can be checked once. Called before anything else, and again if it failed. */
  open?(signal: AbortSignal): Promise<void>;

  /** The newest document of that name; null: there is none. It must not be older than a write that was answered before. */
  read(name: string, signal: AbortSignal): Promise<StoredDocument | null>;

  /** Writes the document if it still has this version; null: only if it does not exist. */
  write(name: string, bytes: Uint8Array, version: string | null, signal: AbortSignal): Promise<WriteResult>;

  /**
   * Optional: calls `changed` after each change of the document, as far as it can: calls may be late, repeated or lost. After a
   * break, during which changes were missed, it calls `changed` once. Returns a function that ends the watch.
   */
  watch?(name: string, changed: () => void): () => void;

  /** Optional: settings of the store that matter to locks, for `holdfast doctor`. */
  diagnose?(): Promise<readonly Check[]>;

  /** Optional: closes what open() opened. */
  close?(): Promise<void>;
}
