/** holdfast/document: locks in any store with a conditional write. */

export { documentDriver } from "./driver.ts";
export type { DocumentDriverOptions } from "./options.ts";
export { type DocumentStore, MAX_DOCUMENT_BYTES, type StoredDocument, type WriteResult } from "./store.ts";
