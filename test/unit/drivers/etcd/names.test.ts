import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { KeyValue } from "../../../../src/drivers/etcd/client/messages.ts";
import { decodeText, encodeText, rangeOf } from "../../../../src/drivers/etcd/client/messages.ts";
import { decodeEntry, encodeRevoked, encodeValue, Names, toQueue } from "../../../../src/drivers/etcd/names.ts";
import type { Claim } from "../../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../../src/spi/driver.ts";

const CLAIM: Claim = {
  id: "aaaaaaaaaaaaaaaaaaaaaaaaaa",
  locks: [{ key: "k", permits: 2, limit: 5 }],
  ttlMs: 10_000,
  tokenCount: 3,
  floor: 7n,
  wait: true,
  label: 'host "a"',
};

function toKeyValue(name: string, value: string, createRevision = 5): KeyValue {
  return { key: encodeText(name), value, create_revision: String(createRevision), mod_revision: "9", lease: "12" };
}

test("the key of an entry is found again, whatever it contains", () => {
  const key = fc.string({ unit: "grapheme", minLength: 1 }).filter((text) => !/\p{Cc}/u.test(text));
  fc.assert(
    fc.property(key, fc.constantFrom("", "holdfast/", "a%2F"), fc.boolean(), (key, prefix, isCompatible) => {
      const names = new Names(prefix, isCompatible);
      expect(names.parseKey(`${names.toQueueName(key)}abcdefghij`)).toBe(key);
      if (!isCompatible) expect(names.toKeyPrefix(key)).not.toContain("/");
    }),
  );
});

test("tombstones, and what is not below the prefix, are no entries", () => {
  const names = new Names("p/", true);
  expect(names.parseKey(names.toTombstone("p/key/abcdefghij"))).toBeNull();
  expect(names.parseKey("other/key/abcdefghij")).toBeNull();
  expect(names.parseKey("p/key")).toBeNull();
  expect(new Names("", true).parseKey("key")).toBeNull();
});

test("a value is read as it was written", () => {
  const entry = decodeEntry(toKeyValue("k/x", encodeValue(CLAIM, 1_000)));
  expect(entry).toEqual({
    name: "k/x",
    createRevision: 5n,
    leaseId: "12",
    permits: 2,
    limit: 5,
    value: {
      ...{ permits: 2, limit: 5, ttlMs: 10_000, tokens: 3, floor: 7n, wait: true, label: 'host "a"' },
      ...{ madeAt: 1_000, isRevoked: false },
    },
  });
  if (entry.value === null) throw new Error("it is not read");
  expect(decodeEntry(toKeyValue("k/x", encodeRevoked(entry.value))).value).toEqual({ ...entry.value, isRevoked: true });
});

test.each(["", "leader-1", "{", '{"holdfast":2}', '{"holdfast":1}', '{"holdfast":1,"permits":1.5}', "null"])(
  "a value of another program or version takes all permits: %j",
  (text) => {
    const { value, permits, limit } = decodeEntry(toKeyValue("k/x", encodeText(text)));
    expect({ value, permits, limit }).toEqual({ value: null, permits: ALL_PERMITS, limit: ALL_PERMITS });
  },
);

describe("a queue", () => {
  test("is in the order of creation, without the entries of keys that begin with its own", () => {
    const kvs = [toKeyValue("a/z", "", 3), toKeyValue("a/b/x", "", 1), toKeyValue("a/y", "", 2)];
    expect(toQueue(kvs, "a/").map(({ name }) => name)).toEqual(["a/y", "a/z"]);
    expect(toQueue(undefined, "a/")).toEqual([]);
  });

  test("is the range of all names that begin with it", () => {
    expect(Object.values(rangeOf("a/")).map((text) => decodeText(text))).toEqual(["a/", "a0"]);
    expect(Object.values(rangeOf("")).map((text) => decodeText(text))).toEqual(["\u0000", "\u0000"]);
  });
});
