/**
 * Which documents a store has. Their number never changes: with another one, keys would be looked for elsewhere. The document "layout"
 * has the number, and a random id of the store that all its documents have. It is written last: where it exists, they all existed.
 */

import { hash, randomBytes } from "node:crypto";
import { StoreRefusedError } from "../../errors.ts";
import type { LockDocument } from "./format.ts";
import { decodeDocument, encodeDocument } from "./format.ts";
import type { StoredDocument } from "./store.ts";
import type { StoreCalls } from "./store-calls.ts";

const STORE_ID_BYTES = 16;

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
export async function openLayout(calls: StoreCalls, wanted: number | undefined, usual: number): Promise<Layout> {
  const stored = await calls.read("layout");
  const found = stored === null ? await create(calls, wanted ?? usual) : decode(calls, "layout", stored);
  if (wanted === undefined || found.documents === wanted) return found;
  throw new StoreRefusedError(
    `${calls.storeName}: the store has documents: ${found.documents} since it was created, so it cannot be used with documents: ${wanted}`,
  );
}

/** Several processes may do so at once: the first document decides on the id of the store, and on the number of documents. */
async function create(calls: StoreCalls, documents: number): Promise<Layout> {
  const proposed = { storeId: randomBytes(STORE_ID_BYTES).toString("hex"), documents };
  const layout = await createDocument(calls, proposed, 0);
  const created = await Promise.all(
    Array.from({ length: layout.documents - 1 }, (_, index) => createDocument(calls, layout, index + 1)),
  );
  // another process has created them all, and uses them; or the layout was deleted, and a document may have been, too
  if ([layout, ...created].some(({ writeNumber }) => writeNumber > 0))
    return decode(calls, "layout", await calls.read("layout"));
  return createDocument(calls, layout, layout.documents);
}

/** Creates an empty document, and returns what is there now. */
async function createDocument(calls: StoreCalls, layout: Layout, number: number): Promise<LockDocument> {
  const empty = { writeNumber: 0, marks: [], lastToken: 0, entries: new Map(), tombstones: new Map() };
  const document = { storeId: layout.storeId, documents: layout.documents, number, ...empty };
  const name = documentName(number, layout);
  if ((await calls.write(name, encodeDocument(document), null)) !== "conflict") return document;
  const stored = await calls.read(name);
  if (stored === null)
    throw new Error(`${calls.storeName}: the document ${name} could not be created, and is not there`);
  return number === 0 ? decode(calls, name, stored) : verifyDocument(calls, layout, number, stored);
}

/** Reads one of the documents. @throws StoreRefusedError if it is missing, damaged, or none of this store */
export function verifyDocument(
  calls: StoreCalls,
  layout: Layout,
  number: number,
  stored: StoredDocument | null,
): LockDocument {
  const name = documentName(number, layout);
  const document = decode(calls, name, stored);
  const { storeId, documents } = document;
  if (storeId === layout.storeId && documents === layout.documents && document.number === number) return document;
  throw new StoreRefusedError(
    `${calls.storeName}: the document ${name} belongs to another store, and is left as it is`,
  );
}

function decode({ storeName }: StoreCalls, name: string, stored: StoredDocument | null): LockDocument {
  if (stored === null)
    throw new StoreRefusedError(`${storeName}: the document ${name} is missing: it may have been deleted`);
  return decodeDocument(stored.bytes, `${storeName}: the document ${name}`);
}
