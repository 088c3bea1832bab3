import assert from "node:assert/strict";
import { describe, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { MAX_DURATION_MS } from "../../../src/util/duration.ts";

/** A memory driver that counts its calls. */
function countingDriver(): { driver: Driver; calls: () => number } {
  const driver = memory();
  let calls = 0;
  const counted: Driver = {
    ...driver,
    claim: (claim) => {
      calls++;
      return driver.claim(claim);
    },
  };
  return { driver: counted, calls: () => calls };
}

const expectTypeError = async (attempt: () => unknown, pattern: RegExp): Promise<void> => {
  await assert.rejects(
    async () => attempt(),
    (error: Error) => {
      assert.ok(error instanceof TypeError, `${error.name}: ${error.message}`);
      assert.match(error.message, pattern);
      assert.ok(error.message.length < 400, "a message stays short whatever the input");
      return true;
    },
  );
};

describe("a wrong key is a TypeError that names it, and nothing is sent", () => {
  const invalidArguments: readonly [string, unknown][] = [
    ["empty", ""],
    ["513 bytes", "k".repeat(513)],
    ["1 MiB", "k".repeat(2 ** 20)],
    ["NUL inside", "a\u0000b"],
    ["CR LF inside", "a\r\nb"],
    ["a terminal escape", "\u001b[2J"],
    ["a C1 control", "a\u009bb"],
    ["a line separator", "a\u2028b"],
    ["a lone surrogate", "a\ud800"],
    ["200 emoji: 800 bytes in 400 units", "😀".repeat(200)],
    ["a number", 7],
    ["an object", {}],
    ["an array", ["k"]],
    ["null", null],
    ["undefined", undefined],
    ["a Symbol", Symbol("k")],
    ["a Buffer", Buffer.from("k")],
    ["a hostile toString", { toString: () => assert.fail("must not be called") }],
  ];
  test.each(invalidArguments)("%s", async (_, key) => {
    const { driver, calls } = countingDriver();
    const locks = createLocks(driver);
    await expectTypeError(() => locks.acquire(key as string), /^key must/);
    await expectTypeError(() => locks.tryAcquire(key as string), /^key must/);
    await expectTypeError(() => locks.using(key as string, () => undefined), /^key must/);
    await expectTypeError(() => locks.rw(key as string).read.acquire(), /^key must/);
    await expectTypeError(() => locks.semaphore(key as string, 2).acquire(), /^key must/);
    await expectTypeError(() => locks.all("fine", key as string).acquire(), /key/);
    assert.equal(calls(), 0);
    await locks.close();
  });
});

describe("unusual keys are valid, and two different ones never share a lock", () => {
  const invalidKeys = [
    " ",
    "k ",
    "k",
    "K",
    "é",
    "e\u0301",
    ".",
    "..",
    "../../other",
    "a/b",
    "a//b",
    "/a/",
    "zookeeper",
    "%2e%2e%2f",
    "{a}{b}",
    "{",
    "*",
    "?",
    "[a-z]",
    "__proto__",
    "constructor",
    "toString",
    "'; DROP TABLE locks;--",
    '"',
    "`",
    "redis.call('flushall')",
    "<img src=x onerror=alert(1)>",
    "\u202etxt",
    "😀".repeat(128),
    "k".repeat(512),
    "team-a",
    "team-ab",
  ];
  test("all of them are held at once", async () => {
    const locks = createLocks(memory());
    const held = await Promise.all(invalidKeys.map((key) => locks.acquire(key, { wait: 0 })));
    assert.equal(
      new Set((await locks.list()).flatMap(({ locks }) => locks.map(({ key }) => key))).size,
      invalidKeys.length,
    );
    for (const lock of held) assert.equal(await lock.release(), true);
    await locks.close();
  });
});

describe("a wrong number or option is a TypeError that names it, and nothing is sent", () => {
  const invalidOptions: readonly [string, Record<string, unknown>, RegExp][] = [
    ["ttl 0", { ttl: 0 }, /^ttl must/],
    ["ttl -1", { ttl: -1 }, /^ttl must/],
    ["ttl 0.5", { ttl: 0.5 }, /^ttl must/],
    ["ttl NaN", { ttl: Number.NaN }, /^ttl must/],
    ["ttl Infinity", { ttl: Number.POSITIVE_INFINITY }, /^ttl must/],
    ["ttl 2^53", { ttl: 2 ** 53 }, /^ttl must/],
    ["ttl 99: no store could be asked in time", { ttl: 99 }, /^ttl must be .* from 100 to/],
    ["ttl 1e400", { ttl: "1e400s" }, /^ttl must/],
    ["ttl as a text without unit", { ttl: "1000" }, /^ttl must/],
    ["ttl as a bigint", { ttl: 1000n }, /^ttl must/],
    ["ttl with an unknown unit", { ttl: "5 parsecs" }, /^ttl must/],
    ["wait -1", { wait: -1 }, /^wait must/],
    ["wait NaN", { wait: Number.NaN }, /^wait must/],
    ["wait as an object", { wait: {} }, /^wait must/],
    ["a hundred years and a millisecond", { wait: MAX_DURATION_MS + 1 }, /^wait must/],
    ["a signal that is none", { signal: {} }, /^signal must/],
    ["order", { order: "fifo" }, /^order must be "process" or "strict", not "fifo"/],
    ["a label that is no text", { label: 7 }, /^label must/],
    ["an option that does not exist", { timeout: 5 }, /no option "timeout"/],
    ["__proto__ as an option of its own", JSON.parse('{"__proto__":1}'), /no option "__proto__"/],
  ];
  test.each(invalidOptions)("%s", async (_, options, pattern) => {
    const { driver, calls } = countingDriver();
    const locks = createLocks(driver);
    await expectTypeError(() => locks.acquire("k", options), pattern);
    await expectTypeError(() => locks.using("k", options, () => undefined), pattern);
    assert.equal(calls(), 0);
    await locks.close();
  });

  test("options that are not an object", async () => {
    const locks = createLocks(memory());
    for (const options of [7, "5s", null, []])
      await expectTypeError(() => locks.acquire("k", options as object), /options of acquire/);
    await expectTypeError(() => locks.tryAcquire("k", { wait: 5 } as object), /tryAcquire has no option "wait"/);
    await locks.close();
  });

  test.each([0, -1, 0.5, Number.NaN, 2 ** 31, "1", 1n, undefined])("limit %s of a semaphore", async (limit) => {
    const locks = createLocks(memory());
    await expectTypeError(() => locks.semaphore("k", limit as number).acquire(), /^limit must/);
    await locks.close();
  });

  test.each([0, -1, 0.5, 5, 2 ** 31, "1", null])("permits %s of a semaphore of 4", async (permits) => {
    const locks = createLocks(memory());
    await expectTypeError(() => locks.semaphore("k", 4).acquire({ permits: permits as number }), /^permits must/);
    await locks.close();
  });

  test("options of the memory driver", () => {
    assert.throws(() => memory(null as never), /options of memory must be an object, not null/);
    assert.throws(() => memory({ store: 5 } as never), /store must be a memoryStore\(\), not 5/);
    assert.throws(() => memory({ stor: memoryStore() } as never), /memory has no option "stor"/);
  });

  test.each<[string, object, RegExp]>([
    ["order", { order: 1 }, /^order must be "process" or "strict", not 1/],
    ["prefix", { prefix: "a\nb" }, /^prefix must/],
    ["reentrant", { reentrant: "no" }, /^reentrant must/],
    ["renew", { renew: 1 }, /^renew must/],
    ["maxHold", { maxHold: "soon" }, /^maxHold must/],
    ["maxHold 0: every lock would be lost at once", { maxHold: 0 }, /^maxHold must be .* from 1 to/],
    ["maxHold null", { maxHold: null }, /^maxHold must/],
    ["clock", { clock: Date }, /^clock must be a clock/],
    ["clock null", { clock: null }, /^clock must/],
    ["an unknown one", { tsl: true }, /no option "tsl"/],
  ])("client option %s", (_, options, pattern) => {
    assert.throws(
      () => createLocks(memory(), options),
      (error: Error) => error instanceof TypeError && pattern.test(error.message),
    );
  });

  test.each([5, "5s", null, [], () => 1])("options of connect() that are not an object: %s", async (options) => {
    await expectTypeError(() => connect("memory:", options as object), /^options of connect must be an object/);
  });

  test.each<[string, object, RegExp]>([
    ["connectTimeout null", { connectTimeout: null }, /^connectTimeout must/],
    ["an unknown one", { tsl: true }, /^connect has no option "tsl"/],
    [
      "a credential where none is asked for",
      { credential: "x" },
      /^credential must not be set: memory: does not use it/,
    ],
  ])("option of connect(): %s", (_, options, pattern) => expectTypeError(() => connect("memory:", options), pattern));

  test.each([undefined, null, "redis://cache:6379", {}, 5])("%s is not a driver", (driver) =>
    expectTypeError(() => createLocks(driver as never), /^driver must be a driver/),
  );

  test("a prefix and a key that are too long together", async () => {
    const locks = createLocks(memory(), { prefix: "p".repeat(500) });
    await expectTypeError(() => locks.acquire("k".repeat(13)), /key with its prefix must/);
    await locks.close();
  });

  test("all() of nothing, of one key in two modes, of another value", () => {
    const locks = createLocks(memory());
    assert.throws(() => locks.all(), TypeError);
    assert.throws(() => locks.all("a", locks.rw("a").read), TypeError);
    assert.throws(() => locks.all({} as string), TypeError);
    const tooManyKeys = Array.from({ length: 129 }, (_, index) => `k${index}`);
    assert.throws(() => locks.all(...tooManyKeys), /at most 128 keys/);
  });
});

describe("durations beyond what a timer can hold", () => {
  test.each([2 ** 31 - 1, 2 ** 31, "1000h" as const])("ttl and wait of %s work without a warning", async (long) => {
    const warnings: Error[] = [];
    const onWarning = (warning: Error): void => void warnings.push(warning);
    process.on("warning", onWarning);
    const store = memoryStore();
    const first = createLocks(memory({ store }));
    const second = createLocks(memory({ store }));
    const lock = await first.acquire("k", { ttl: long });
    const waits = second.acquire("k", { wait: long, ttl: long });
    assert.equal(await lock.release(), true);
    assert.equal(await (await waits).release(), true);
    await first.close();
    await second.close();
    process.off("warning", onWarning);
    assert.deepEqual(warnings, []);
  });
});

describe("urls", () => {
  test.each<[string, string, RegExp]>([
    ["no url", "nonsense", /^url must/],
    ["an unknown scheme", "ftp://host", /^url must begin/],
    ["a mistyped parameter", "holdfast://host?tsl=true", /no parameter "tsl"/],
    ["no host", "holdfast://", /host|url/],
    [
      "an empty one: it is no wish for the default store",
      "",
      /^url must be a url, for example redis:\/\/host:6379, not ""/,
    ],
    ["no socket", "holdfast+unix:", /socket/],
    ["a socket in a place that depends on where we stand", "holdfast+unix:socket", /absolute path/],
    ["a path of which the parser makes a host", "holdfast+unix://run/socket", /absolute path/],
    ["a path of which the parser makes a fragment", "holdfast+unix:/run/a#b", /absolute path/],
    ["a name for a store that nobody shares", "memory:tests", /memory:/],
    ["a password", "holdfast://u:secret-canary@host", /user or password/],
  ])("%s", async (_, url, pattern) => {
    await expectTypeError(() => connect(url), pattern);
    await connect(url).catch((error: Error) => assert.doesNotMatch(String(error.stack), /secret-canary/));
  });
});

describe("detach", () => {
  test.each<[string, unknown, RegExp]>([
    ["no object", 5, /^options of detach must be an object, not 5$/],
    ["an unknown option", { tll: "5s" }, /^detach has no option "tll"$/],
    ["no duration", { ttl: "soon" }, /^ttl must be a whole number of milliseconds/],
    ["nothing left", { ttl: 0 }, /^ttl must be a whole number of milliseconds from 1 /],
    ["more than there is", { ttl: "31s" }, /^ttl must be at most the lock's own of 30 s, not "31s"$/],
  ])("%s is refused, and the lock is still held here", async (_, options, pattern) => {
    const locks = createLocks(memory());
    const lock = await locks.acquire("k");
    await expectTypeError(() => lock.detach(options as { ttl: 5 }), pattern);
    lock.throwIfLost();
    assert.equal(await lock.release(), true);
    await locks.close();
  });
});

describe("references", () => {
  test("a cut, altered or foreign one is a TypeError; no secret is shown", async () => {
    const locks = createLocks(memory());
    const reference = await (await locks.acquire("k")).detach();
    const alteredReference = `${reference.slice(0, 12)}${reference[12] === "A" ? "B" : "A"}${reference.slice(13)}`;
    for (const invalidReference of [
      alteredReference,
      reference.slice(0, -1),
      "",
      "hf1",
      "hf2.x.y",
      7,
      null,
      `${reference}.x`,
    ]) {
      await expectTypeError(() => locks.attach(invalidReference as string), /^reference/);
    }
    const lock = await locks.attach(`  ${reference}\n`);
    assert.equal(await lock.release(), true);
    await locks.close();
  });
});

test("an error that is not a typing mistake suggests what to do", async () => {
  const locks = createLocks(memory());
  assert.throws(() => locks.all([["a", "b"]] as never), /one by one or as one list, not a list inside a list/);
  const nested = locks.rw("k").read.using(() => locks.rw("k").write.acquire());
  await assert.rejects(nested, /would wait for itself; acquire the stronger lock first/);
  const lock = await locks.acquire("travels");
  const reference = await lock.detach();
  assert.throws(() => lock.throwIfLost(), /^LockLostError: the lock on "travels" was detached and is no longer held/);
  await (await locks.attach(reference)).release();
  await locks.close();
});
