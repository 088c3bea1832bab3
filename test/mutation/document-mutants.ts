/** Faults of the document driver: one for each of its invariants, and for what bounds the time that others wait. */

import type { Mutant } from "./mutants.ts";

const folder = "src/drivers/document";
const tests = "test/unit/drivers/document/operations.test.ts";
const format = { file: `${folder}/format.ts`, tests: "test/unit/drivers/document/format.test.ts" };
const layout = { file: `${folder}/layout.ts`, tests: "test/unit/drivers/document/layout.test.ts" };
const draft = { file: `${folder}/draft.ts`, tests };
const shared = { file: `${folder}/shared-document.ts`, tests };
const claims = { file: `${folder}/claims.ts`, tests };

export const DOCUMENT_MUTANTS: readonly Mutant[] = [
  {
    ...shared,
    name: "in documents, a conflict taken for a write",
    find: 'if (result === "conflict") return true;',
    replace: 'if (result === "conflict") { this.#answer(answers, outcome); return false; }',
  },
  {
    ...shared,
    name: "in documents, a lease that counts from the answer to its renewal",
    find: "const outcome = { draft, sentAt: readTime() };",
    replace: "const outcome = { draft, get sentAt() { return readTime(); } };",
  },
  {
    ...draft,
    name: "in documents, a lease that ends while it is renewed",
    // biome-ignore lint/suspicious/noTemplateCurlyInString: it is quoted
    find: "return `${id} ${renewedBy}`;",
    // biome-ignore lint/suspicious/noTemplateCurlyInString: it is quoted
    replace: "return `${id} ${renewedBy > 0}`;",
  },
  {
    ...draft,
    name: "in documents, a lease that ends for others as soon as for its holder",
    find: "const RATE_ALLOWANCE = 1.01;",
    replace: "const RATE_ALLOWANCE = 0.99;",
  },
  {
    ...draft,
    name: "in documents, a lease that a newcomer takes for ended",
    find: "this.#since = new Map(names.map((name) => [name, this.#since.get(name) ?? now]));",
    replace: "this.#since = new Map(names.map((name) => [name, this.#since.get(name) ?? now * 0]));",
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
    find: "queues.map(({ lastToken }) => lastToken - this.#tokenBase);",
    replace: "queues.map(({ lastToken }) => lastToken - this.#tokenBase - 1);",
  },
  {
    ...draft,
    name: "in documents, tokens that begin anew when a document has no claims",
    find: "micros: document.lastToken + tokenBase + 1 };",
    replace: "micros: (document.queues.length === 0 ? 0 : document.lastToken) + tokenBase + 1 };",
  },
  {
    ...draft,
    name: "in documents, a late claim that is placed after its release",
    find: "hasUnansweredClaim ? claim.ttlMs : undefined);",
    replace: "undefined);",
  },
  {
    ...draft,
    name: "in documents, more claims than fit",
    find: "this.#freeBytes = MAX_DOCUMENT_BYTES - ",
    replace: "this.#freeBytes = MAX_DOCUMENT_BYTES * 9 - ",
  },
  {
    ...draft,
    name: "in documents, tombstones without a bound",
    find: "maxTombstones: MAX_TOMBSTONES, ",
    replace: "maxTombstones: MAX_TOMBSTONES * 1e9, ",
  },
  {
    ...shared,
    name: "in documents, an own write that is not recognized",
    find: "if (stored.document.marks.includes(write.mark)) ",
    replace: "if (stored.document.marks.length > 99) ",
  },
  {
    ...shared,
    name: "in documents, an old read that is believed",
    find: "if (stored.document.writeNumber < newestWrite)",
    replace: "if (stored.document.writeNumber < 0)",
  },
  {
    ...shared,
    name: "in documents, an answer from what was read before the call",
    find: "const fresh = answers.filter(([{ hasRead }]) => hasRead);",
    replace: "const fresh = answers.filter(([{ hasRead }]) => hasRead || true);",
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
    find: "if (conflicts === MAX_CONFLICTS)",
    replace: "if (conflicts === 1e9)",
  },
  {
    ...format,
    name: "in documents, a damaged document that is believed",
    find: "if (computeChecksum(body) !== checksum)",
    replace: "if (computeChecksum(body).slice(1) !== checksum?.slice(1))",
  },
  {
    ...layout,
    name: "in documents, a document of another store that is believed",
    find: "if (document.storeId === layout.storeId && document.documents === layout.documents && document.number === number)",
    replace: "if (document.documents === layout.documents)",
  },
  {
    ...layout,
    name: "in documents, another number of documents than the store has",
    find: "if (wanted === undefined || layout.documents === wanted) return layout;",
    replace: "if (wanted !== -1) return { ...layout, documents: wanted ?? layout.documents };",
  },
  {
    ...layout,
    name: "in documents, a store in use that is completed with new documents",
    find: "if ([first, ...(await Promise.all(others))].some(({ writeNumber }) => writeNumber > 0))",
    replace: "if ((await Promise.all(others)).length > 1e9)",
  },
];
