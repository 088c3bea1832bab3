import fc from "fast-check";
import { expect, test } from "vitest";
import type { EndNote, Entry, LockDocument } from "../../../../src/drivers/document/format.ts";
import { decodeDocument, encodeDocument } from "../../../../src/drivers/document/format.ts";
import { MAX_DOCUMENT_BYTES } from "../../../../src/drivers/document/store.ts";
import { ALL_PERMITS } from "../../../../src/spi/driver.ts";
import { randomId } from "../../../../src/util/ids.ts";

const NAME = "the document locks-0";

const wholeNumber = fc.oneof(fc.integer({ min: 0, max: 300 }), fc.maxSafeNat());
const text = fc.string({ unit: "grapheme", maxLength: 40 });
const renewal = fc.tuple(wholeNumber, wholeNumber, wholeNumber);

const entry: fc.Arbitrary<Entry> = fc.tuple(
  ...[fc.string({ minLength: 1 }), renewal, text],
  ...[wholeNumber, wholeNumber, wholeNumber, wholeNumber, wholeNumber],
  ...[fc.boolean(), fc.boolean(), fc.boolean(), fc.boolean(), wholeNumber],
) as fc.Arbitrary<never>;

const endNote: fc.Arbitrary<EndNote> = fc.tuple(
  fc.string(),
  renewal,
  fc.constantFrom("released", "expired", "revoked", "maxHold"),
);

const anyDocument: fc.Arbitrary<LockDocument> = fc.record({
  ...{ storeId: text, documents: wholeNumber, number: wholeNumber, writeNumber: wholeNumber },
  ...{ marks: fc.array(text, { maxLength: 16 }), lastToken: wholeNumber },
  queues: fc.array(fc.tuple(text, fc.array(entry, { maxLength: 4 })), { maxLength: 4 }),
  tombstones: fc.array(endNote, { maxLength: 4 }),
});

test("a document is read as it was written, its entries in the same order", () => {
  fc.assert(
    fc.property(anyDocument, (document) => {
      const read = decodeDocument(encodeDocument(document), NAME);
      expect(read).toEqual(document);
    }),
  );
});

function isRefused(bytes: Uint8Array): boolean {
  try {
    decodeDocument(bytes, NAME);
    return false;
  } catch (error) {
    return String(error).includes(`StoreRefusedError: ${NAME} `);
  }
}

test("every damage of one byte is refused, as is every shorter or longer document", () => {
  fc.assert(
    fc.property(anyDocument, fc.integer({ min: 1, max: 255 }), (document, change) => {
      const bytes = encodeDocument(document);
      for (let index = 0; index < bytes.length; index++) {
        const damaged = Uint8Array.from(bytes); // slice() of a Buffer is no copy
        damaged[index] = (bytes[index] as number) ^ change;
        if (!isRefused(damaged)) throw new Error(`byte ${index} was damaged, and the document is believed`);
      }
      for (const length of [0, 1, bytes.length >> 1, bytes.length - 1])
        expect(() => decodeDocument(bytes.slice(0, length), NAME)).toThrow(NAME);
      expect(() => decodeDocument(Buffer.concat([bytes, Buffer.of(0)]), NAME)).toThrow(NAME);
    }),
    { numRuns: 5 },
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
    (_, index): Entry => [
      ...([
        randomId(),
        [2 ** 40, 30_000, 86_400_000],
        `ana@web-${index} pid ${10_000 + index} nightly report`,
      ] as const),
      ...([ALL_PERMITS, ALL_PERMITS, 30_000, 64, 2 ** 40] as const),
      ...([true, false, false, false, 2 ** 40] as const),
    ],
  );
  const document = {
    ...(fc.sample(anyDocument, 1)[0] as LockDocument),
    queues: [["orders/nightly-report", entries] as const],
  };
  expect(encodeDocument(document).length).toBeLessThan(MAX_DOCUMENT_BYTES * 0.8);
});
