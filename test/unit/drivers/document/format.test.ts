import fc from "fast-check";
import { expect, test } from "vitest";
import type { EndNote, Entry, LockDocument } from "../../../../src/drivers/document/format.ts";
import { decodeDocument, encodeDocument } from "../../../../src/drivers/document/format.ts";
import { MAX_DOCUMENT_BYTES } from "../../../../src/drivers/document/store.ts";
import { ALL_PERMITS } from "../../../../src/spi/driver.ts";
import { randomId } from "../../../../src/util/ids.ts";

const NAME = "the document locks-0";

const wholeNumber = fc.oneof(fc.integer({ min: 0, max: 300 }), fc.maxSafeNat());
const hex = (length: number) =>
  fc.uint8Array({ minLength: length, maxLength: length }).map((bytes) => Buffer.from(bytes).toString("hex"));
const text = fc.string({ unit: "grapheme", maxLength: 40 });

const entry: fc.Arbitrary<Entry> = fc.record({
  ...{ id: fc.string({ minLength: 1 }), label: text },
  ...{ permits: wholeNumber, limit: wholeNumber, ttlMs: wholeNumber, tokenCount: wholeNumber, floor: wholeNumber },
  ...{ wait: fc.boolean(), recall: fc.boolean(), isRevoked: fc.boolean(), isDetached: fc.boolean() },
  ...{ renewedBy: wholeNumber, leaseMs: wholeNumber, ageMs: wholeNumber, token: wholeNumber },
});

const tombstone: fc.Arbitrary<readonly [string, EndNote]> = fc.tuple(
  fc.string(),
  fc.record({
    reason: fc.constantFrom("released", "expired", "revoked", "maxHold"),
    leaseMs: wholeNumber,
    renewedBy: wholeNumber,
  }),
);

const anyDocument: fc.Arbitrary<LockDocument> = fc.record({
  ...{ storeId: hex(16), documents: wholeNumber, number: wholeNumber, writeNumber: wholeNumber },
  ...{ marks: fc.array(hex(8), { maxLength: 16 }), lastToken: wholeNumber },
  queues: fc.array(fc.tuple(text, fc.array(entry, { maxLength: 4 })), { maxLength: 4 }).map((all) => new Map(all)),
  tombstones: fc.array(tombstone, { maxLength: 4 }).map((all) => new Map(all)),
});

test("a document is read as it was written, its entries in the same order", () => {
  fc.assert(
    fc.property(anyDocument, (document) => {
      const read = decodeDocument(encodeDocument(document), NAME);
      expect(read).toEqual(document);
    }),
  );
});

test("every damage of one byte is refused, as is every shorter or longer document", () => {
  fc.assert(
    fc.property(anyDocument, fc.integer({ min: 1, max: 255 }), (document, change) => {
      const bytes = encodeDocument(document);
      for (let index = 0; index < bytes.length; index++) {
        const damaged = Uint8Array.from(bytes); // slice() of a Buffer is no copy
        damaged[index] = (bytes[index] as number) ^ change;
        expect(() => decodeDocument(damaged, NAME)).toThrow(NAME);
      }
      for (const length of [0, 1, bytes.length >> 1, bytes.length - 1])
        expect(() => decodeDocument(bytes.slice(0, length), NAME)).toThrow(NAME);
      expect(() => decodeDocument(Buffer.concat([bytes, Buffer.of(0)]), NAME)).toThrow(NAME);
    }),
    { numRuns: 20 },
  );
});

test("bytes of another program, and another layout, are named", () => {
  expect(() => decodeDocument(Buffer.from('{"owner":"another program"}'), NAME)).toThrow(
    "the document locks-0 was not written by Holdfast, and is left as it is",
  );
  const bytes = Buffer.from(encodeDocument(fc.sample(anyDocument, 1)[0] as LockDocument));
  bytes.write("2", "holdfast-locks ".length);
  expect(() => decodeDocument(bytes, NAME)).toThrow("has the layout 2, and this release knows only 1");
});

test("1,000 waiters of as many processes take less than 256 KiB", () => {
  const entries = Array.from(
    { length: 1_000 },
    (_, index): Entry => ({
      ...{
        id: randomId(),
        label: `ana@web-${index} pid ${10_000 + index} nightly report`,
      },
      ...{ permits: ALL_PERMITS, limit: ALL_PERMITS, ttlMs: 30_000, tokenCount: 64, floor: 2 ** 40 },
      ...{ wait: true, recall: false, isRevoked: false, isDetached: false },
      ...{ renewedBy: 2 ** 40, leaseMs: 30_000, ageMs: 86_400_000, token: 2 ** 40 },
    }),
  );
  const document = {
    ...(fc.sample(anyDocument, 1)[0] as LockDocument),
    queues: new Map([["orders/nightly-report", entries]]),
  };
  expect(encodeDocument(document).length).toBeLessThan(MAX_DOCUMENT_BYTES * 0.8);
});
