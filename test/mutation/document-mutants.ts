/** Faults of the document driver: one for each of its invariants, and for what bounds the time that others wait. */

import type { Mutant } from "./mutants.ts";

const folder = "src/drivers/document";
const tests = "test/unit/drivers/document/operations.test.ts";
const format = { file: `${folder}/format.ts`, tests: "test/unit/drivers/document/format.test.ts" };
const layout = { file: `${folder}/layout.ts`, tests: "test/unit/drivers/document/layout.test.ts" };
const draft = { file: `${folder}/draft.ts`, tests };
const shared = { file: `${folder}/shared-document.ts`, tests };
const stopwatches = { file: `${folder}/stopwatches.ts`, tests };
const claims = { file: `${folder}/document-claims.ts`, tests };

export const DOCUMENT_MUTANTS: readonly Mutant[] = [
  {
    ...shared,
    name: "in documents, a conflict taken for a write",
    find: 'if (result === null || result === "conflict") {',
    replace: "if (result === null || Math.random() > 1) {",
  },
  {
    ...shared,
    name: "in documents, a lease that counts from the answer to its renewal",
    find: "sentAt: readTime(), answers };",
    replace: "get sentAt() { return readTime(); }, answers };",
  },
  {
    ...stopwatches,
    name: "in documents, a lease that ends while it is renewed",
    find: 'return [id, renewedBy].join(" ");',
    replace: 'return [id, renewedBy > 0].join(" ");',
  },
  {
    ...stopwatches,
    name: "in documents, a lease that ends for others as soon as for its holder",
    find: "const RATE_ALLOWANCE = 1.01;",
    replace: "const RATE_ALLOWANCE = 0.99;",
  },
  {
    ...stopwatches,
    name: "in documents, a lease that a newcomer takes for ended",
    find: "since.set(nameOf(id, renewal), this.#since.get(nameOf(id, renewal)) ?? now);",
    replace: "since.set(nameOf(id, renewal), this.#since.get(nameOf(id, renewal)) ?? 0);",
  },
  {
    ...claims,
    name: "in documents, a renewal that only reads and counts the lease anew",
    find: "Math.max(startedAt - own.sentAt, 0), 0);",
    replace: "Math.max(0 * own.sentAt, 0), 0);",
  },
  {
    file: `${folder}/driver.ts`,
    name: "in documents, a lease that goes on while the machine is suspended",
    find: "const readTime = createSuspendAwareTime(clock);",
    replace: "createSuspendAwareTime(clock); const readTime = () => clock.now();",
    tests,
  },
  {
    ...draft,
    name: "in documents, a token range that the next grant begins in",
    find: "this.#lastToken = token + entry.tokenCount - 1;",
    replace: "this.#lastToken = token;",
  },
  {
    ...draft,
    name: "in documents, tokens that begin anew when a document has no claims",
    find: "this.#lastToken = base.lastToken;",
    replace: "this.#lastToken = base.entries.size === 0 ? 0 : base.lastToken;",
  },
  {
    ...draft,
    name: "in documents, a late claim that is placed after its release",
    find: "if (this.#tombstones.has(claim.id)) return;",
    replace: "",
  },
  {
    ...draft,
    name: "in documents, more claims than fit",
    find: "MAX_DOCUMENT_BYTES - RESERVED_BYTES)",
    replace: "MAX_DOCUMENT_BYTES * 9)",
  },
  {
    ...draft,
    name: "in documents, tombstones without a bound",
    find: "if (this.#tombstones.size > MAX_TOMBSTONES)",
    replace: "if (this.#tombstones.size > 1e9)",
  },
  {
    ...shared,
    name: "in documents, an own write that is not recognized",
    find: "if (document.marks.includes(write.mark)) ",
    replace: "if (document.marks.length > 99) ",
  },
  {
    ...shared,
    name: "in documents, an old read that is believed",
    find: "if (document.writeNumber < newestWrite) throw",
    replace: "if (document.writeNumber < 0) throw",
  },
  {
    ...shared,
    name: "in documents, an answer from what was read before the call",
    find: "const fresh = [...answers].filter(([{ firstRead }]) => firstRead <= this.#knownByRead);",
    replace: "const fresh = [...answers];",
  },
  {
    ...shared,
    name: "in documents, a process that lets no other write",
    find: "const MAX_WRITES_IN_ROW = 16;",
    replace: "const MAX_WRITES_IN_ROW = 1e9;",
  },
  {
    ...shared,
    name: "in documents, conflicts without an end",
    find: "attempts >= MAX_ATTEMPTS",
    replace: "attempts >= 1e9",
  },
  {
    ...format,
    name: "in documents, a damaged document that is believed",
    find: "if (!checksumOf(body).equals(buffer.subarray(-CHECKSUM_BYTES)))",
    replace: "if (!checksumOf(body).subarray(1).equals(buffer.subarray(1 - CHECKSUM_BYTES)))",
  },
  {
    ...layout,
    name: "in documents, a document of another store that is believed",
    find: "if (storeId === layout.storeId && documents === layout.documents && document.number === number) return document;",
    replace: "if (documents === layout.documents && storeId !== number.toString()) return document;",
  },
  {
    ...layout,
    name: "in documents, another number of documents than the store has",
    find: "if (wanted === undefined || found.documents === wanted) return found;",
    replace: "if (wanted !== -1) return { ...found, documents: wanted ?? found.documents };",
  },
  {
    ...layout,
    name: "in documents, a store in use that is completed with new documents",
    find: "if ([layout, ...created].some(({ writeNumber }) => writeNumber > 0))",
    replace: "if (created.length > 1e9)",
  },
];
