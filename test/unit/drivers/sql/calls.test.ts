import { describe, expect, test } from "vitest";
import { Calls } from "../../../../src/drivers/sql/calls.ts";
import type { SqlClient, SqlConnection, SqlResult } from "../../../../src/drivers/sql/clients/types.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

const EMPTY: SqlResult = { rows: [], affectedCount: 0 };

/** A pool of one connection, whose statements settle when the test says so. */
class ScriptedPool implements SqlClient {
  readonly dialect = "postgres";
  readonly library = "scripted";
  /** What was sent. */
  readonly sent: string[] = [];
  /** For each return of the connection: was it broken? */
  readonly returned: boolean[] = [];
  readonly #pending: { readonly resolve: (result: SqlResult) => void; readonly reject: (error: Error) => void }[] = [];
  #isFree = true;
  readonly #waiters: (() => void)[] = [];

  async connect(): Promise<SqlConnection> {
    if (!this.#isFree) await new Promise<void>((resolve) => this.#waiters.push(resolve));
    this.#isFree = false;
    return {
      query: (text) => {
        this.sent.push(text);
        return new Promise((resolve, reject) => this.#pending.push({ resolve, reject }));
      },
      release: (isBroken = false) => {
        this.returned.push(isBroken);
        this.#isFree = true;
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

  async close(): Promise<void> {
    throw new Error("the user's pool stays open");
  }
}

function setUp(): { readonly pool: ScriptedPool; readonly clock: FakeClock; readonly calls: Calls } {
  const [pool, clock] = [new ScriptedPool(), new FakeClock()];
  const calls = new Calls(pool, {
    driverName: "postgres",
    clock,
    timeoutMs: 100,
    isBrokenBy: (error) => String(error).includes("broken"),
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
