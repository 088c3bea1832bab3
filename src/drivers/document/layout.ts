/**
 * Which documents a store has. Their number never changes: with another one, keys would be looked for elsewhere. The document "layout"
 * has the number, and a random id of the store that all its documents have. It is written last: where it exists, they all existed.
 */

import { hash, randomBytes } from "node:crypto";
import { StoreRefusedError } from "../../errors.ts";
import type { CallTimeouts } from "../call-timeouts.ts";
import type { LockDocument, StoredLocks } from "./format.ts";
import { decodeDocument, encodeDocument } from "./format.ts";
import type { DocumentStore, WriteResult } from "./store.ts";

const STORE_ID_BYTES = 16;

/** A store, and the timeouts of calls to it. */
export interface StoreAccess {
  readonly store: DocumentStore;
  readonly timeouts: CallTimeouts;
}

/** What the documents of one store have in common. */
export type Layout = Pick<LockDocument, "storeId" | "documents">;

/** The name of a document; the layout is the one behind the last. */
export function documentName(number: number, { documents }: Layout): string {
  return number === documents ? "layout" : `locks-${number}`;
}

/** The number of the document that has this key. */
export function numberOf(key: string, { documents }: Layout): number {
  return hash("sha256", key, "buffer").readUInt32BE() % documents;
}

/**
 * Finds the documents of a store, or creates them.
 * @param wanted how many there must be; undefined: as many as there are, or `usual`
 * @throws StoreRefusedError if there are others
 */
export async function openLayout(access: StoreAccess, wanted: number | undefined, usual: number): Promise<Layout> {
  const stored = await findDocument(access, "layout");
  const layout = stored?.document ?? (await createDocuments(access, wanted ?? usual));
  if (wanted === undefined || layout.documents === wanted) return layout;
  throw new StoreRefusedError(
    `${access.store.name}: the store has documents: ${layout.documents} since it was created, so it cannot be used with documents: ${wanted}`,
  );
}

/** Several processes may do so at once: the first document decides on the id of the store, and on the number of documents. */
async function createDocuments(access: StoreAccess, documents: number): Promise<Layout> {
  const storeId = randomBytes(STORE_ID_BYTES).toString("hex");
  const first = await createDocument(access, { storeId, documents }, 0);
  const others = Array.from({ length: first.documents - 1 }, (_, index) => createDocument(access, first, index + 1));
  // another process has created them all, and uses them; or the layout was deleted, and a document may have been, too
  if ([first, ...(await Promise.all(others))].some(({ writeNumber }) => writeNumber > 0))
    return (await readDocument(access, first, first.documents)).document;
  return createDocument(access, first, first.documents);
}

/** Creates an empty document, and returns what is there now. */
async function createDocument(access: StoreAccess, layout: Layout, number: number): Promise<LockDocument> {
  const { storeId, documents } = layout;
  const empty = { writeNumber: 0, marks: [], lastToken: 0, queues: [], tombstones: [] };
  const document = { storeId, documents, number, ...empty };
  const name = documentName(number, layout);
  if ((await writeDocument(access, name, encodeDocument(document), null)) !== "conflict") return document;
  const stored = await findDocument(access, name);
  if (stored === null)
    throw new Error(`${access.store.name}: the document ${name} could not be created, and is not there`);
  return (number === 0 ? stored : verify(access, layout, number, stored)).document;
}

/** @throws StoreRefusedError if the document is missing, damaged, or none of this store */
export async function readDocument(
  access: StoreAccess,
  layout: Layout,
  number: number,
  stop?: AbortSignal,
): Promise<StoredLocks> {
  const name = documentName(number, layout);
  const stored = await findDocument(access, name, stop);
  if (stored !== null) return verify(access, layout, number, stored);
  throw new StoreRefusedError(`${access.store.name}: the document ${name} is missing: it may have been deleted`);
}

/** An error means that the write may have happened, and may still happen. */
export function writeDocument(
  { store, timeouts }: StoreAccess,
  name: string,
  bytes: Uint8Array,
  version: string | null,
): Promise<WriteResult> {
  return timeouts.call((signal) => store.write(name, bytes, version, signal), "answer to a write");
}

async function findDocument(access: StoreAccess, name: string, stop?: AbortSignal): Promise<StoredLocks | null> {
  const { store, timeouts } = access;
  const read = (signal: AbortSignal) => store.read(name, stop ? AbortSignal.any([signal, stop]) : signal);
  const stored = await timeouts.call(read, "answer to a read");
  if (stored === null) return null;
  const { bytes, version } = stored;
  return { document: decodeDocument(bytes, `${store.name}: the document ${name}`), version, byteCount: bytes.length };
}

function verify({ store }: StoreAccess, layout: Layout, number: number, stored: StoredLocks): StoredLocks {
  const { document } = stored;
  if (document.storeId === layout.storeId && document.documents === layout.documents && document.number === number)
    return stored;
  const name = documentName(number, layout);
  throw new StoreRefusedError(`${store.name}: the document ${name} belongs to another store, and is left as it is`);
}
