/** Where other libraries call functions in the async context of a stranger, as the guide says; and that withoutCurrentLock() leaves it. */

import { EventEmitter, once } from "node:events";
import pg from "pg";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { TestLocks } from "../../src/testing/index.ts";
import { createTestLocks } from "../../src/testing/index.ts";
import { withoutCurrentLock } from "../../src/wrapping/current-lock.ts";
import type { InteropModule } from "../support/interop.ts";
import { loadInterop } from "../support/interop.ts";

const DataLoader = loadInterop("dataloader", "frameworks");
const { Pool } = pg as InteropModule;

let locks: TestLocks;
beforeEach(() => {
  locks = createTestLocks({ clock: "timers" });
});
afterEach(() => locks.close());

/** One caller loads while it holds the key, another one without it, in the same turn. Returns what the batch found. */
async function loadTogether(runBatch: <T>(fn: () => T) => T): Promise<readonly [keys: string[], isHeld: boolean]> {
  let found: readonly [string[], boolean] | undefined;
  const loader = new DataLoader(
    async (keys: string[]) => {
      await runBatch(async () => {
        found = [keys, locks.holds("journal")];
      });
      return keys;
    },
    { cache: false },
  );
  const turn = new EventEmitter();
  const stranger = once(turn, "turn").then(() => loader.load("stranger"));
  await locks.using("journal", async () => {
    const own = loader.load("holder");
    turn.emit("turn");
    await own;
  });
  await stranger;
  return found ?? [[], false];
}

test("a batch of a DataLoader runs in the context of its first caller, for all callers", async () => {
  expect(await loadTogether((fn) => fn())).toEqual([["holder", "stranger"], true]);
});

test("with withoutCurrentLock() no lock of that caller is held in the batch", async () => {
  expect(await loadTogether(withoutCurrentLock)).toEqual([["holder", "stranger"], false]);
});

/** What the pool of pg needs of a client, without a server. */
class IdleClient extends EventEmitter {
  connect(callback: () => void): void {
    setImmediate(callback);
  }
  end(callback: () => void): void {
    callback();
  }
}

test("a queued callback of a pool runs in the context of the call that gives a connection back; its promise does not", async () => {
  const pool = new Pool({ Client: IdleClient, max: 1 });
  const first = await pool.connect();
  const seen = new Map<string, boolean>();
  const byCallback = new Promise<void>((resolve) => {
    pool.connect((_error: unknown, _client: unknown, done: () => void) => {
      seen.set("callback", locks.holds("orders"));
      withoutCurrentLock(() => seen.set("without", locks.holds("orders")));
      done();
      resolve();
    });
  });
  const byPromise = pool.connect().then((client: InteropModule) => {
    seen.set("promise", locks.holds("orders"));
    client.release();
  });
  await locks.using("orders", async () => {
    first.release();
    await byCallback;
  });
  await byPromise;
  await pool.end();
  expect(Object.fromEntries(seen)).toEqual({ callback: true, without: false, promise: false });
});
