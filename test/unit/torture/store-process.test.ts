/** Faults of a store's processes, and their repair, which ends in time. */

import { expect, test } from "vitest";
import { createRandom } from "../../../src/testing/random.ts";
import type { StoreFault } from "../../../src/torture/stores/started-store.ts";
import { StoreFailedError } from "../../../src/torture/stores/started-store.ts";
import type { StoreServer } from "../../../src/torture/stores/store-process.ts";
import { injectInto, injectIntoServer } from "../../../src/torture/stores/store-process.ts";

const BOUND_MS = 50;

/** What was done with it is in `calls`. */
function createServer(calls: string[], name = "", start = async (): Promise<void> => undefined): StoreServer {
  return {
    async start() {
      calls.push(`start${name}`);
      await start();
    },
    stop: async () => void calls.push(`stop${name}`),
    crash: async () => void calls.push(`crash${name}`),
    signal: (signal) => void calls.push(`${signal}${name}`),
  };
}

const NEVER = new Promise<never>(() => undefined);

test.each<[StoreFault, readonly string[]]>([
  ["store-kill", ["crash", "start"]],
  ["store-restart", ["stop", "start"]],
  ["store-pause", ["SIGSTOP", "SIGCONT"]],
  ["store-wipe", ["crash", "wipe", "start"]],
  ["power-loss", ["power of 1,2", "start"]],
])("%s", async (fault, expected) => {
  const calls: string[] = [];
  const inject = injectInto({
    name: "a store",
    servers: [createServer(calls)],
    wipe: async () => void calls.push("wipe"),
    losePower: async (_, users) => void calls.push(`power of ${users}`),
  });
  await (await inject(fault, createRandom(1), [1, 2]))?.();
  expect(calls).toEqual(expected);
});

test("one fault at a time, and a fail-over only where there is one", async () => {
  const inject = injectIntoServer("a store", createServer([]));
  expect(await inject("store-fail-over", createRandom(1), [])).toBeNull();
  const repair = await inject("store-kill", createRandom(1), []);
  expect(await inject("store-pause", createRandom(1), [])).toBeNull();
  await repair?.();
  expect(await inject("store-pause", createRandom(1), [])).not.toBeNull();
});

test("of several servers each is struck, the leader more often", async () => {
  const calls: string[] = [];
  const servers = [" 0", " 1", " 2"].map((name) => createServer(calls, name)) as [StoreServer, ...StoreServer[]];
  const inject = injectInto({ name: "a store", servers, findLeader: async () => servers[1] as StoreServer });
  const random = createRandom(1);
  for (let round = 0; round < 60; round++) await (await inject("store-kill", random, []))?.();
  const counts = ["crash 0", "crash 1", "crash 2"].map((name) => calls.filter((call) => call === name).length);
  expect(Math.min(...counts)).toBeGreaterThan(2);
  expect(counts[1]).toBeGreaterThan(30);
});

test("a server that never starts again ends the run, with the name of the store", async () => {
  const inject = injectInto({ name: "a store", servers: [createServer([], "", () => NEVER)] }, BOUND_MS);
  const repair = await inject("store-kill", createRandom(1), []);
  await expect(repair?.()).rejects.toThrow(
    new StoreFailedError("a store could not be used again within 0.05 s after store-kill"),
  );
});

test("so do servers that never become a whole", async () => {
  const isWhole = async (): Promise<boolean> => false;
  const inject = injectInto({ name: "a store", servers: [createServer([])], isWhole }, BOUND_MS);
  const repair = await inject("store-pause", createRandom(1), []);
  await expect(repair?.()).rejects.toThrow("a store could not be used again within 0.05 s after store-pause");
});

test("a fault that fails names the store, too", async () => {
  const server = { ...createServer([]), stop: () => Promise.reject(new Error("it does not end")) };
  const inject = injectIntoServer("a store", server);
  await expect(inject("store-restart", createRandom(1), [])).rejects.toThrow(
    "a store could not be struck by store-restart: it does not end",
  );
});
