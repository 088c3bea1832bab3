import { describe, expect, test } from "vitest";
import type { CallKind } from "../../../../src/drivers/sql/call-kinds.ts";
import { NEARBY_ALONE_MS, REMOTE_ALONE_MS } from "../../../../src/drivers/sql/call-scheduler.ts";
import { Calls } from "../../../../src/drivers/sql/calls.ts";
import type { SqlClient, SqlConnection, SqlResult } from "../../../../src/drivers/sql/clients/types.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

const EMPTY: SqlResult = { rows: [], affectedCount: 0 };

/** A pool, of one connection by default, whose statements settle when the test says so. */
class ScriptedPool implements SqlClient {
  readonly dialect = "postgres";
  readonly library = "scripted";
  /** What was sent. */
  readonly sent: string[] = [];
  /** For each return of the connection: was it broken? */
  readonly returned: boolean[] = [];
  /** How often it was asked for a connection. */
  asked = 0;
  readonly #pending: { readonly resolve: (result: SqlResult) => void; readonly reject: (error: Error) => void }[] = [];
  #freeCount: number;
  readonly #waiters: (() => void)[] = [];

  constructor(size = 1) {
    this.#freeCount = size;
  }

  async connect(): Promise<SqlConnection> {
    this.asked++;
    if (this.#freeCount === 0) await new Promise<void>((resolve) => this.#waiters.push(resolve));
    this.#freeCount--;
    return {
      query: (text) => {
        this.sent.push(text);
        return new Promise((resolve, reject) => this.#pending.push({ resolve, reject }));
      },
      release: (isBroken = false) => {
        this.returned.push(isBroken);
        this.#freeCount++;
        this.#waiters.shift()?.();
      },
    };
  }

  answer(): void {
    this.#pending.shift()?.resolve(EMPTY);
  }

  fail(message: string): void {
    this.#pending.shift()?.reject(new Error(message));
  }

  readonly watchBreaks = () => () => undefined;

  async close(): Promise<void> {
    throw new Error("the user's pool stays open");
  }
}

function setUp(
  size = 1,
  timeoutMs = 100,
): { readonly pool: ScriptedPool; readonly clock: FakeClock; readonly calls: Calls } {
  const [pool, clock] = [new ScriptedPool(size), new FakeClock()];
  const calls = new Calls(pool, {
    driverName: "postgres",
    clock,
    timeoutMs,
    isBrokenBy: (error) => String(error).includes("broken"),
    isReadOnly: (error) => String(error).includes("read-only"),
    onBreak: () => undefined,
    explain: (error) => new Error(`explained ${(error as Error).message}`),
  });
  return { pool, clock, calls };
}

const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe("a call", () => {
  test("that succeeds returns its connection, and stops its timer", async () => {
    const { pool, clock, calls } = setUp();
    const call = calls.query("one");
    await settle();
    pool.answer();
    expect(await call).toBe(EMPTY);
    expect(pool.returned).toEqual([false]);
    expect(clock.pendingTimers).toBe(0);
  });

  test("that is refused by a server which only reads goes on with other connections, and closes those", async () => {
    const { pool, calls } = setUp();
    const call = calls.query("one");
    for (let refusals = 0; refusals < 9; refusals++) {
      await settle();
      pool.fail("read-only");
    }
    await settle();
    pool.answer();
    expect(await call).toBe(EMPTY);
    expect(pool.returned).toEqual([...Array.from({ length: 9 }, () => true), false]);
  });

  test("that ten connections have refused so fails", async () => {
    const { pool, clock, calls } = setUp();
    const call = calls.query("one");
    const rejected = expect(call).rejects.toThrow("explained read-only");
    for (let refusals = 0; refusals < 10; refusals++) {
      await settle();
      pool.fail("read-only");
    }
    await rejected;
    expect(pool.asked).toBe(10);
    expect(clock.pendingTimers).toBe(0);
  });

  test("that waited long for its connection says so when it times out", async () => {
    const { pool, clock, calls } = setUp();
    const first = calls.query("first");
    const second = calls.query("second");
    second.catch(() => undefined);
    await settle();
    await clock.advance(80);
    pool.answer();
    await first;
    await settle();
    expect(pool.sent).toEqual(["first", "second"]);
    await clock.advance(20);
    await expect(second).rejects.toThrow(
      /^postgres: no answer within 100 ms, of which it waited 80 ms for a connection of the pool$/,
    );
  });

  test.each([
    ["of its statement", "wrong", false],
    ["after which a transaction may be open", "broken", true],
  ])("with an error %s returns its connection accordingly", async (_, message, isBroken) => {
    const { pool, calls } = setUp();
    const call = calls.query("one");
    await settle();
    pool.fail(message);
    await expect(call).rejects.toThrow(`explained ${message}`);
    expect(pool.returned).toEqual([isBroken]);
  });

  test("that gets no answer in time returns its connection as broken, once", async () => {
    const { pool, clock, calls } = setUp();
    const call = calls.query("one");
    const rejection = expect(call).rejects.toThrow("postgres: no answer within 100 ms");
    await settle();
    await clock.advance(100);
    await rejection;
    pool.answer();
    await settle();
    expect(pool.returned).toEqual([true]);
  });

  test("that gets no connection in time sends nothing when it gets one, and gives it to the next", async () => {
    const { pool, clock, calls } = setUp();
    const first = calls.query("first");
    const rejected = expect(calls.query("abandoned")).rejects.toThrow(
      "postgres: no free connection within 100 ms: are all connections of the pool in use?",
    );
    first.catch(() => undefined);
    await settle();
    await clock.advance(100);
    await rejected;
    await settle();
    const third = calls.query("third");
    await settle();
    pool.answer(); // of the first, which has timed out
    pool.answer();
    await third;
    expect(pool.sent).toEqual(["first", "third"]);
    expect(pool.returned).toEqual([true, false, false]);
  });

  test("rejects when the driver closes, and a later one at once", async () => {
    const { pool, calls } = setUp();
    const call = expect(calls.query("one")).rejects.toThrow("postgres: the driver was closed during the call");
    await settle();
    calls.close();
    await call;
    await expect(calls.query("two")).rejects.toThrow("postgres: the driver is closed");
    expect(pool.sent).toEqual(["one"]);
  });
});

/** Calls of claims. Each has a bucket of its own. */
const claimsOf = (calls: Calls, ids: readonly string[]): Promise<SqlResult | null>[] =>
  ids.map((id, index) => calls.runClaim(id, index, (connection) => connection.query(id)));

/** Releases these claims, all of one bucket; says whether each was there. */
async function releaseAll(calls: Calls, ids: readonly string[]): Promise<readonly boolean[]> {
  const rows = ids.map((id) => ({ id, key: id, bucket: 0, ttlMs: 1_000, hasUnansweredClaim: true }));
  const { flags } = await calls.release(rows, (batch) => async (connection) => {
    await connection.query(`release ${batch.map(({ id }) => id).join(" ")}`);
    return { flags: batch.map(() => true), pushes: [] };
  });
  return flags;
}

describe("claim calls", () => {
  test("of a burst let a later call go first, and are sent in their order", async () => {
    const { pool, calls } = setUp();
    const claims = claimsOf(calls, ["a", "b", "c", "d", "e", "f"]);
    await settle();
    const renewal = calls.query("renew");
    for (let count = 0; count < 7; count++) {
      await settle();
      pool.answer();
    }
    await Promise.all([...claims, renewal]);
    expect(pool.sent).toEqual(["a", "b", "c", "renew", "d", "e", "f"]);
  });

  test("that are repeated before they have a connection are sent once", async () => {
    const { pool, clock, calls } = setUp();
    const claims = claimsOf(calls, ["a", "b", "c", "b", "c", "c"]);
    for (let count = 0; count < 3; count++) {
      await settle();
      pool.answer();
    }
    expect(await Promise.all(claims)).toEqual(claims.map(() => EMPTY));
    expect(pool.sent).toEqual(["a", "b", "c"]);
    // sent already: it may not have arrived
    const [repeated] = claimsOf(calls, ["a"]);
    await settle();
    pool.answer();
    expect(await repeated).toBe(EMPTY);
    expect(clock.pendingTimers).toBe(0);
  });

  test("without a connection are never sent once their claim is released, and nothing else is sent for them", async () => {
    const { pool, clock, calls } = setUp();
    const [sent, asking, other, queued] = claimsOf(calls, ["a", "b", "c", "d"]);
    await settle();
    const release = releaseAll(calls, ["a", "b", "d"]);
    expect(await Promise.all([asking, queued])).toEqual([null, null]);
    for (let count = 0; count < 3; count++) {
      pool.answer();
      await settle();
    }
    expect(await Promise.all([sent, other])).toEqual([EMPTY, EMPTY]);
    expect(pool.sent).toEqual(["a", "c", "release a"]);
    expect(await release).toEqual([true, false, false]);
    await clock.advance(NEARBY_ALONE_MS);
    expect(clock.pendingTimers).toBe(0);
  });

  test("are released if an earlier call of the claim was sent and not answered", async () => {
    const { pool, clock, calls } = setUp();
    const [lost] = claimsOf(calls, ["a"]);
    await settle();
    pool.fail("by the network");
    await expect(lost).rejects.toThrow("by the network");
    const busy = calls.query("busy");
    await settle();
    const [repeated] = claimsOf(calls, ["a"]);
    const release = releaseAll(calls, ["a"]);
    expect(await repeated).toBe(null);
    for (let count = 0; count < 2; count++) {
      pool.answer();
      await settle();
    }
    await busy;
    expect(await release).toEqual([true]);
    expect(pool.sent).toEqual(["a", "busy", "release a"]);
    // that is over
    const [next] = claimsOf(calls, ["a"]);
    expect(await releaseAll(calls, ["a"])).toEqual([false]);
    expect(await next).toBe(null);
    await settle();
    expect(pool.sent).toHaveLength(3);
    expect(clock.pendingTimers).toBe(0);
  });

  test("are released if an earlier call of the claim was answered after the core had given it up and repeated it", async () => {
    const { pool, calls } = setUp();
    const [late] = claimsOf(calls, ["a"]);
    await settle();
    const [busy, [repeated]] = [calls.query("busy"), claimsOf(calls, ["a"])];
    pool.answer();
    expect(await late).toBe(EMPTY);
    const release = releaseAll(calls, ["a"]);
    expect(await repeated).toBe(null);
    await settle();
    pool.answer();
    await busy;
    await settle();
    pool.answer();
    expect(await release).toEqual([true]);
    expect(pool.sent).toEqual(["a", "busy", "release a"]);
  });

  test("that were answered leave nothing: a later call of the claim that is withdrawn is not released", async () => {
    const { pool, calls } = setUp();
    const [first, second] = [claimsOf(calls, ["a"])[0], calls.query("busy")];
    await settle();
    pool.answer();
    await first;
    const [repeated] = claimsOf(calls, ["a"]);
    await settle();
    expect(await releaseAll(calls, ["a"])).toEqual([false]);
    expect(await repeated).toBe(null);
    pool.answer();
    await second;
    expect(pool.sent).toEqual(["a", "busy"]);
  });

  test("that time out together do not ask the pool one after another, and later ones are sent", async () => {
    const { pool, clock, calls } = setUp();
    const claims = claimsOf(
      calls,
      Array.from({ length: 100 }, (_, index) => `claim ${index}`),
    );
    const rejections = Promise.all(claims.map((claim) => expect(claim).rejects.toThrow("within 100 ms")));
    await settle();
    const { asked } = pool;
    await clock.advance(100);
    await rejections;
    expect(pool.asked).toBe(asked);
    const [later] = claimsOf(calls, ["later"]);
    await settle();
    pool.answer(); // of the first, which has timed out
    pool.answer();
    expect(await later).toBe(EMPTY);
    expect(pool.sent).toEqual(["claim 0", "later"]);
  });

  test("that get no connection in time all name the pool, also those that have not asked yet", async () => {
    const { pool, clock, calls } = setUp();
    const first = calls.query("first");
    first.catch(() => undefined);
    const claims = Promise.allSettled(claimsOf(calls, ["a", "b", "c", "d"]));
    await settle();
    await clock.advance(100);
    const reason = new Error("postgres: no free connection within 100 ms: are all connections of the pool in use?");
    expect(await claims).toEqual(["a", "b", "c", "d"].map(() => ({ status: "rejected", reason })));
    expect(pool.sent).toEqual(["first"]);
  });

  test("that fail before they have a connection, or are pending when the driver closes, leave no call behind", async () => {
    const { pool, calls } = setUp();
    const connect = pool.connect.bind(pool);
    pool.connect = () => Promise.reject(new Error("refused"));
    const refused = claimsOf(calls, ["a", "b", "c", "d"]);
    await Promise.all(refused.map((claim) => expect(claim).rejects.toThrow("explained refused")));
    pool.connect = connect;
    const claims = claimsOf(calls, ["e", "f", "g", "h"]);
    const rejections = Promise.all(
      claims.map((claim) => expect(claim).rejects.toThrow("the driver was closed during the call")),
    );
    await settle();
    const { asked } = pool;
    calls.close();
    await rejections;
    await settle();
    expect(pool.asked).toBe(asked);
    expect(pool.sent).toEqual(["e"]);
  });
});

describe("calls for one bucket", () => {
  const claimOne = (calls: Calls, id: string, bucket = 0): Promise<SqlResult | null> =>
    calls.runClaim(id, bucket, (connection) => connection.query(id));
  const runOne = (calls: Calls, text: string, kind?: CallKind): Promise<SqlResult> =>
    calls.run((connection) => connection.query(text), 0, kind);

  test("are sent one after another, renewals, releases and claims alternate; calls for other buckets are sent at once", async () => {
    const { pool, clock, calls } = setUp(10);
    const claims = ["a", "b", "c"].map((id) => claimOne(calls, id));
    const renewals = ["renew 1", "renew 2"].map((text) => runOne(calls, text));
    const others = [runOne(calls, "release", "release"), claimOne(calls, "other", 1), calls.query("many")];
    await settle();
    expect(pool.sent).toEqual(["a", "other", "many"]);
    for (let count = 0; count < 8; count++) {
      pool.answer();
      await settle();
    }
    await Promise.all([...claims, ...renewals, ...others]);
    expect(pool.sent).toEqual(["a", "other", "many", "renew 1", "release", "b", "renew 2", "c"]);
    await clock.advance(NEARBY_ALONE_MS);
    expect(clock.pendingTimers).toBe(0);
  });

  test("for releases share a statement while they wait, but none overtakes a call of their kind", async () => {
    const { pool, clock, calls } = setUp(10);
    const holder = runOne(calls, "renew");
    await settle();
    const releases = [releaseAll(calls, ["a"]), releaseAll(calls, ["b", "c"])];
    const restore = runOne(calls, "restore", "release");
    releases.push(releaseAll(calls, ["d"]), releaseAll(calls, ["e"]));
    for (let count = 0; count < 4; count++) {
      pool.answer();
      await settle();
    }
    await Promise.all([holder, restore]);
    expect(await Promise.all(releases)).toEqual([[true], [true, true], [true], [true]]);
    expect(pool.sent).toEqual(["renew", "release a b c", "restore", "release d e"]);
    await clock.advance(NEARBY_ALONE_MS);
    expect(clock.pendingTimers).toBe(0);
  });

  test("for releases that fail together leave the next ones a statement of their own", async () => {
    const { pool, calls } = setUp(10);
    const holder = runOne(calls, "renew");
    await settle();
    const failing = [releaseAll(calls, ["a"]), releaseAll(calls, ["b"])].map((release) =>
      expect(release).rejects.toThrow("explained by the database"),
    );
    pool.answer();
    await holder;
    await settle();
    pool.fail("by the database");
    await Promise.all(failing);
    const next = releaseAll(calls, ["c"]);
    await settle();
    pool.answer();
    expect(await next).toEqual([true]);
    expect(pool.sent).toEqual(["renew", "release a b", "release c"]);
  });

  test("wait a bounded time for one that is stuck, whose late end does not count as the end of another", async () => {
    const { pool, clock, calls } = setUp(10, 1_000);
    const claims = ["stuck", "a", "b"].map((id) => claimOne(calls, id));
    await settle();
    await clock.advance(REMOTE_ALONE_MS - 1);
    expect(pool.sent).toEqual(["stuck"]);
    await clock.advance(1);
    expect(pool.sent).toEqual(["stuck", "a"]);
    await clock.advance(REMOTE_ALONE_MS - 1);
    pool.answer();
    await claims[0];
    await settle();
    expect(pool.sent).toEqual(["stuck", "a"]);
    await clock.advance(1);
    expect(pool.sent).toEqual(["stuck", "a", "b"]);
    pool.answer();
    pool.answer();
    await Promise.all(claims);
    expect(clock.pendingTimers).toBe(0);
  });

  test("wait longer for one that is stuck if the database has answered another one soon: it is nearby", async () => {
    const { pool, clock, calls } = setUp(10, 1_000);
    const first = calls.query("first");
    await settle();
    await clock.advance(5);
    pool.answer();
    await first;
    const claims = Promise.allSettled(["stuck", "a"].map((id) => claimOne(calls, id)));
    await settle();
    await clock.advance(NEARBY_ALONE_MS - 1);
    expect(pool.sent).toEqual(["first", "stuck"]);
    await clock.advance(1);
    expect(pool.sent).toEqual(["first", "stuck", "a"]);
    calls.close();
    await claims;
  });

  test("let the next one start when they fail, and when they are withdrawn", async () => {
    const { pool, calls } = setUp(10);
    const failed = expect(claimOne(calls, "failed")).rejects.toThrow("explained by the database");
    const [withdrawn, claim] = ["withdrawn", "b"].map((id) => claimOne(calls, id));
    await settle();
    const release = runOne(calls, "release");
    expect(await releaseAll(calls, ["withdrawn"])).toEqual([false]);
    pool.fail("by the database");
    await failed;
    for (let count = 0; count < 2; count++) {
      await settle();
      pool.answer();
    }
    expect(await Promise.all([withdrawn, claim])).toEqual([null, EMPTY]);
    expect(await release).toBe(EMPTY);
    expect(pool.sent).toEqual(["failed", "release", "b"]);
    // it is alone no longer: the next call does not wait
    const next = runOne(calls, "next");
    await settle();
    pool.answer();
    await next;
  });

  test("that time out together are not sent one after another; those that were never sent say so", async () => {
    const { pool, clock, calls } = setUp(10, 2.5 * REMOTE_ALONE_MS);
    const claims = Array.from({ length: 100 }, (_, index) => claimOne(calls, `claim ${index}`));
    const rejections = Promise.allSettled(claims);
    await settle();
    await clock.advance(2.5 * REMOTE_ALONE_MS);
    const messages = (await rejections).map((outcome) => String((outcome as PromiseRejectedResult).reason.message));
    expect(pool.sent).toEqual(["claim 0", "claim 1", "claim 2"]);
    expect(messages[0]).toBe("postgres: no answer within 25 ms");
    expect(new Set(messages.slice(3))).toEqual(
      new Set(["postgres: not sent within 25 ms, behind other calls of this process for the same key"]),
    );
    const later = claimOne(calls, "later");
    await settle();
    expect(pool.sent.at(-1)).toBe("later");
    calls.close();
    await expect(later).rejects.toThrow("closed");
  });

  test("that waited long behind others say so when they time out", async () => {
    const { pool, clock, calls } = setUp(10, 3.5 * REMOTE_ALONE_MS);
    const claims = ["a", "b", "c", "d"].map((id) => claimOne(calls, id));
    const outcomes = Promise.allSettled(claims);
    await settle();
    await clock.advance(3.5 * REMOTE_ALONE_MS);
    expect(pool.sent).toEqual(["a", "b", "c", "d"]);
    expect((await outcomes).at(-1)).toEqual({
      status: "rejected",
      reason: new Error(
        "postgres: no answer within 35 ms, of which it waited 30 ms behind other calls of this process for the same key",
      ),
    });
  });

  test("are not sent after the driver is closed", async () => {
    const { pool, clock, calls } = setUp(10);
    const claims = ["a", "b", "c"].map((id) => claimOne(calls, id));
    const outcomes = Promise.allSettled(claims);
    await settle();
    calls.close();
    await outcomes;
    await clock.advance(1_000);
    expect([pool.sent, clock.pendingTimers]).toEqual([["a"], 0]);
  });
});
