import { expect, test } from "vitest";
import type { ConnectionOptions } from "../../../../src/drivers/server/connection.ts";
import { Connection } from "../../../../src/drivers/server/connection.ts";
import type { TransportEvents } from "../../../../src/net/transport.ts";
import { encodeServerHello, PROTOCOL_LIMITS, PROTOCOL_VERSION } from "../../../../src/protocol/handshake.ts";
import { FakeClock, flushEventLoop } from "../../../support/fake-clock.ts";

type Attempt = { readonly events: TransportEvents; readonly written: string[]; isClosed: boolean; isRef: boolean };

/** A connection to a scripted server. Each call sends the frame `["x",<number>]`. */
function createWorld(options: Partial<ConnectionOptions> = {}) {
  const attempts: Attempt[] = [];
  const clock = new FakeClock();
  const pushes: unknown[] = [];
  const state = {
    isNeeded: false,
    losses: 0,
    previousRunIds: [] as (string | null)[],
    shortestLeaseMs: Number.POSITIVE_INFINITY,
    onTimer: () => {},
  };
  const connection = new Connection(
    {
      connector: {
        url: "holdfast://scripted",
        connect(events) {
          const attempt: Attempt = { events, written: [], isClosed: false, isRef: false };
          attempts.push(attempt);
          return {
            write: (data) => void attempt.written.push(String(data)),
            close: () => {
              attempt.isClosed = true;
            },
            keepAlive: (isEnabled) => {
              attempt.isRef = isEnabled;
            },
          };
        },
      },
      beforeConnect: undefined,
      connectTimeoutMs: 5_000,
      opensOnce: false,
      sessionId: "s",
      label: "",
      credential: undefined,
      clock,
      random: () => 0.5,
      ...options,
    },
    {
      lastSeenState: () => null,
      onConnected: (_, previousRunId) => void state.previousRunIds.push(previousRunId),
      onDisconnected: () => void state.losses++,
      onPush: (frame) => void pushes.push(frame),
      isNeeded: () => state.isNeeded,
      needsHeartbeat() {
        state.onTimer();
        return false;
      },
      shortestLeaseMs: () => state.shortestLeaseMs,
    },
  );
  const call = (): Promise<unknown> => {
    const reply = connection.call(
      (callId) => `["x",${callId}]`,
      (result) => result,
    );
    reply.catch(() => undefined);
    return reply;
  };
  return { attempts, clock, connection, pushes, state, call };
}

const HELLO = JSON.parse(
  encodeServerHello({
    protocol: PROTOCOL_VERSION,
    version: "0",
    runId: "run1",
    sessionMs: 30_000,
    endsWithConnection: true,
    traits: {
      lease: { claim: true },
      manyKeys: true,
      permits: "any",
      fencing: true,
      fifo: true,
      durability: "restart",
      recall: false,
    },
    recoveryRemainingMs: 0,
    limits: PROTOCOL_LIMITS,
  }),
) as { readonly hello: object };

function send(attempt: Attempt | undefined, value: unknown): void {
  attempt?.events.onData(Buffer.from(`${JSON.stringify(value)}\n`));
}

test("calls of one turn share a line, which leaves after the hello of both sides", async () => {
  const { attempts, call } = createWorld();
  const replies = [call(), call()];
  expect(attempts).toHaveLength(1);
  expect(attempts[0]?.written).toHaveLength(1); // the client's hello
  send(attempts[0], HELLO);
  expect(attempts[0]?.written[1]).toBe('["run1",["x",1],["x",2]]\n');
  send(attempts[0], ["run1", ["ok", 2, "b"], ["ok", 1, "a"]]);
  expect(await Promise.all(replies)).toEqual(["a", "b"]);
});

test("a call fails when the transport it was sent over ends; a late event of that transport is ignored", async () => {
  const { attempts, call, state, clock } = createWorld();
  const reply = call();
  send(attempts[0], HELLO);
  attempts[0]?.events.onClosed(new Error("cut"));
  await expect(reply).rejects.toThrow("the connection to the lock server was lost: cut");
  expect(state.losses).toBe(1);
  const next = call();
  await clock.advance(20);
  expect(attempts).toHaveLength(2);
  send(attempts[0], ["run1", ["ok", 2, "from the past"]]);
  attempts[0]?.events.onClosed(null);
  send(attempts[1], HELLO);
  send(attempts[0], ["run1", ["ok", 2, "from the past"]]);
  send(attempts[1], ["run1", ["ok", 2, "now"]]);
  expect(await next).toBe("now");
  expect(state.previousRunIds).toEqual([null, "run1"]);
});

test("while a connection is needed, a call waits for it for a second; later calls fail at once until a server is reached", async () => {
  const { attempts, call, clock, state } = createWorld();
  state.isNeeded = true;
  const reply = call();
  attempts[0]?.events.onClosed(new Error("refused"));
  let isSettled = false;
  void reply.catch(() => {
    isSettled = true;
  });
  await clock.advance(900);
  expect(isSettled).toBe(false);
  for (let count = 0; count < 20; count++) {
    attempts.at(-1)?.events.onClosed(new Error("refused"));
    await clock.advance(20);
  }
  await expect(reply).rejects.toThrow("the lock server cannot be reached: refused");
  const attemptCount = attempts.length;
  await expect(call()).rejects.toThrow("the lock server cannot be reached: refused");
  expect(attempts).toHaveLength(attemptCount);
});

test("after an unannounced loss a connection that is not needed is made again; after an announced one it is not", async () => {
  const unannounced = createWorld();
  const announced = createWorld();
  for (const { call, attempts } of [unannounced, announced]) {
    const reply = call();
    send(attempts[0], HELLO);
    send(attempts[0], ["run1", ["ok", 1, null]]);
    await reply;
  }
  unannounced.attempts[0]?.events.onClosed(null);
  await unannounced.clock.advance(100);
  expect(unannounced.attempts).toHaveLength(2);
  expect(unannounced.attempts[1]?.isRef).toBe(false);
  send(announced.attempts[0], ["run1", ["drain"]]);
  announced.attempts[0]?.events.onClosed(null);
  await announced.clock.advance(40_000);
  expect(announced.attempts).toHaveLength(1);
});

test("a refused hello ends open() with a fatal error that names the server", async () => {
  const { attempts, connection } = createWorld();
  const pendingOpen = connection.open();
  send(attempts[0], { error: { code: "AUTH", message: "no such credential" } });
  await expect(pendingOpen).rejects.toMatchObject({
    code: "LOCK_STORE_REFUSED",
    message: "holdfast://scripted refused: no such credential",
  });
  expect(attempts[0]?.isClosed).toBe(true);
});

test.each([
  ["an end without an answer", (attempt?: Attempt) => attempt?.events.onClosed(null)],
  [
    "a server without room",
    (attempt?: Attempt) => send(attempt, { error: { code: "LIMIT", message: "at most 2 connections" } }),
  ],
  [
    "a refused connection",
    (attempt?: Attempt) => attempt?.events.onClosed(Object.assign(new Error("refused"), { code: "ECONNREFUSED" })),
  ],
])("open() tries again after %s, until the timeout; with opensOnce it rejects at once", async (_, fail) => {
  const once = createWorld({ opensOnce: true });
  const onceOpened = once.connection.open();
  fail(once.attempts[0]);
  await expect(onceOpened).rejects.toThrow("the lock server cannot be reached");
  const late = createWorld();
  const opened = late.connection.open();
  const tooLate = createWorld();
  const failed = expect(tooLate.connection.open()).rejects.toThrow("the lock server cannot be reached");
  const failFor = async ({ attempts, clock }: ReturnType<typeof createWorld>, lengthMs: number): Promise<void> => {
    for (let ms = 0; ms < lengthMs; ms += 10) {
      if (attempts.at(-1)?.isClosed === false) fail(attempts.at(-1));
      await clock.advance(10);
    }
  };
  await failFor(tooLate, 5_000);
  await failed;
  await failFor(late, 2_000);
  while (late.attempts.at(-1)?.isClosed === true) await late.clock.advance(10);
  send(late.attempts.at(-1), HELLO);
  await opened;
});

test("open() that runs out of time during a later attempt rejects with the reason of the one before it", async () => {
  const { attempts, clock, connection } = createWorld();
  const failed = expect(connection.open()).rejects.toThrow("holdfast://scripted: at most 2 connections");
  send(attempts[0], { error: { code: "LIMIT", message: "at most 2 connections" } });
  await clock.advance(5_000);
  await failed;
  expect(attempts).toHaveLength(2);
});

test("open() rejects at once when another attempt would fail, too", async () => {
  const { attempts, connection } = createWorld();
  const opened = connection.open();
  attempts[0]?.events.onClosed(Object.assign(new Error("permission denied"), { code: "EACCES" }));
  await expect(opened).rejects.toThrow("permission denied");
});

test("an attempt whose preparation is still running when the connection is closed opens no transport", async () => {
  let finish = (): void => undefined;
  const { attempts, connection } = createWorld({
    beforeConnect: () =>
      new Promise((resolve) => {
        finish = resolve;
      }),
  });
  const pendingOpen = connection.open();
  connection.close();
  finish();
  await expect(pendingOpen).rejects.toThrow("the driver was closed");
  await flushEventLoop();
  expect(attempts).toHaveLength(0);
});

test("half a line of a transport that has ended is not continued by the next one", async () => {
  const { attempts, call, clock } = createWorld();
  void call();
  attempts[0]?.events.onData(Buffer.from('{"hel'));
  attempts[0]?.events.onClosed(null);
  const reply = call();
  await clock.advance(20);
  send(attempts[1], HELLO);
  expect(attempts[1]?.isClosed).toBe(false);
  send(attempts[1], ["run1", ["ok", 2, "done"]]);
  expect(await reply).toBe("done");
});

/** Over a network silence ends a connection. */
const NETWORK_HELLO = { hello: { ...HELLO.hello, endsWithConnection: false } };

test.each([
  [30_000, 5_000],
  [6_000, 1_000],
  [1_000, 600],
])(
  "a lease of %i ms is renewed on a new connection before it ends: silence ends one after two times %i ms",
  async (leaseMs, silentMs) => {
    const { attempts, clock, state, call } = createWorld();
    state.shortestLeaseMs = leaseMs;
    void call();
    send(attempts[0], NETWORK_HELLO);
    await flushEventLoop();
    const count = attempts[0]?.written.length ?? 0;
    await clock.advance(silentMs - 1);
    expect(attempts[0]?.written).toHaveLength(count);
    await clock.advance(1);
    expect(attempts[0]?.written.slice(count).join("")).toContain("ping");
    await clock.advance(silentMs - 1);
    expect(state.losses).toBe(0);
    await clock.advance(1);
    expect(state.losses).toBe(1);
    // a third of the lease had passed before the renewal was sent
    if (leaseMs >= 6_000) expect(leaseMs / 3 + 2 * silentMs).toBeLessThan(0.9 * leaseMs);
  },
);

test("an answer that this process was too busy to read is read before the connection counts as silent", async () => {
  const { attempts, clock, state, call } = createWorld();
  const reply = call();
  send(attempts[0], NETWORK_HELLO);
  await clock.advance(5_000);
  // the timer fires late, and what the server has answered is read after it
  state.onTimer = () => {
    state.onTimer = () => {};
    setImmediate(() => send(attempts[0], ["run1", ["ok", 1, "answer"]]));
  };
  clock.jump(60_000);
  await clock.advance(10_000);
  expect(state.losses).toBe(0);
  expect(await reply).toBe("answer");
});

test("a server that answers later than that costs one connection: the next one is given twice the time, until an answer is quick", async () => {
  const { attempts, clock, state, call } = createWorld();
  state.isNeeded = true;
  state.shortestLeaseMs = 1_000;
  let callId = 0;
  /** The answer comes after this time; false: the connection was given up before. */
  const exchange = async (ms: number): Promise<boolean> => {
    const losses = state.losses;
    void call();
    callId++;
    await flushEventLoop();
    await clock.advance(ms);
    if (state.losses > losses) return false;
    // the pings have numbers, too: what is answered does not matter
    send(attempts.at(-1), ["run1"]);
    return true;
  };
  void call();
  send(attempts[0], NETWORK_HELLO);
  send(attempts[0], ["run1"]);
  expect(await exchange(1_300)).toBe(false);
  await clock.advance(2_000);
  send(attempts.at(-1), NETWORK_HELLO);
  for (const _ of [1, 2, 3]) expect(await exchange(1_300)).toBe(true);
  expect(await exchange(500)).toBe(true);
  expect(await exchange(1_300)).toBe(false);
  expect(attempts.length).toBeGreaterThan(1);
  expect(callId).toBe(6);
});
