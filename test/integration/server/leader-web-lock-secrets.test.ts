// Claim ids and references are secrets: nothing that an election, a web lock, an event, a log or an error shows contains one.

import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { inspect } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import type { LockEvents } from "../../../src/client/events.ts";
import type { Locks } from "../../../src/client/locks.ts";
import type { ClientLogger } from "../../../src/client/logger.ts";
import { webLocks } from "../../../src/web-locks/index.ts";
import { createFaultyMemory, createFaultyServer } from "../../support/faulty-stores.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { cleanUpAfterEach } from "../../support/server-fixture.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

/** Every event there is: the type makes the list complete. */
const EVENTS: Readonly<Record<keyof LockEvents, true>> = {
  requested: true,
  failed: true,
  acquired: true,
  waiting: true,
  handedOff: true,
  attached: true,
  detached: true,
  renewed: true,
  released: true,
  jeopardy: true,
  restored: true,
  lost: true,
  clockStep: true,
  storeDown: true,
  storeUp: true,
};
const EVENT_NAMES = Object.keys(EVENTS) as (keyof LockEvents)[];

/** Collects what a program could print or send. */
function createCollector() {
  const texts: string[] = [];
  const seenEvents = new Set<string>();
  const add = (value: unknown): void => {
    texts.push(inspect(value, { depth: 12, getters: true }));
    texts.push(JSON.stringify(value, (_, part) => (typeof part === "bigint" ? String(part) : part)) ?? "");
    for (let error = value; error instanceof Error; error = error.cause) texts.push(`${error.stack} ${error.message}`);
  };
  const line = (fields: object, message: string): void => add([fields, message]);
  const logger: ClientLogger = { debug: line, info: line, warn: line, error: line };
  const onMessage = (message: unknown): void => add(message);
  for (const name of EVENT_NAMES) subscribe(`holdfast:${name}`, onMessage);
  process.on("warning", add);
  onTestFinished(() => {
    for (const name of EVENT_NAMES) unsubscribe(`holdfast:${name}`, onMessage);
    process.off("warning", add);
  });
  const listen = (locks: Locks): void => {
    for (const name of EVENT_NAMES) {
      locks.on(name, (detail) => {
        seenEvents.add(name);
        add(detail);
        if ("error" in detail) add(detail.error);
      });
    }
  };
  return { add, logger, listen, seenEvents, text: () => texts.join("\n") };
}

test.each([
  ["memory", createFaultyMemory],
  ["a server", () => createFaultyServer("10s")],
] as const)("on %s", async (_, createStore) => {
  const store = await createStore();
  const { add, logger, listen, seenEvents, text } = createCollector();
  const [a, b] = [store.start("a", { logger }), store.start("b", { logger })];
  for (const { locks } of [a, b]) listen(locks);
  const failed = (promise: Promise<unknown>): void => void promise.then(() => add("it succeeded"), add);

  // an election with two candidates, and an observer
  const elections = [a, b].map(({ locks }) => locks.leader("scheduler"));
  for (const election of elections) {
    const run = async (): Promise<void> => {
      for await (const term of election) {
        add([election, term, term.signal]);
        await new Promise((resolve) => term.signal.addEventListener("abort", resolve));
        add(term.signal.reason);
      }
    };
    failed(run());
  }
  const observe = async (): Promise<void> => {
    for await (const leader of b.locks.leader("scheduler").observe()) add(leader);
  };
  failed(observe());
  await store.advance(2_000);
  a.network.loseNextReply("release");
  elections[0]?.resign();
  await store.advance(2_000);

  // web locks: one that is stolen, one that waits, one that is refused
  const [managerA, managerB] = [webLocks(a.locks), webLocks(b.locks)];
  failed(managerA.request("web", (lock) => new Promise(() => add([managerA, lock, lock?.token]))));
  await store.advance(100);
  failed(managerB.request("web", { ifAvailable: true }, add));
  const waiting = new AbortController();
  failed(managerB.request("web", { signal: waiting.signal }, add));
  failed(managerB.query().then(add));
  await store.advance(100);
  failed(managerA.request("web", { steal: true }, add));
  waiting.abort();
  await store.advance(1_000);

  // hand-offs, refusals, a lock that changes its process
  for (let count = 0; count < 3; count++) failed(a.locks.using("queue", () => undefined));
  failed(b.locks.acquire("web", { wait: "1s" }).then((lock) => lock.release()));
  const moved = a.locks.acquire("moved");
  await store.advance(2_000);
  add(await moved);
  failed(b.locks.tryAcquire("moved").then(add));
  failed(b.locks.acquire("moved", { wait: "1s" }));
  await store.advance(2_000);
  const detaching = (await moved).detach();
  await store.advance(100);
  const reference = await detaching;
  failed(b.locks.attach(`${reference.slice(0, -1)}!`));
  const attaching = b.locks.attach(reference);
  await store.advance(100);
  add(await attaching);
  failed(a.locks.attach(reference));
  failed(b.locks.list().then(add));
  await store.advance(1_000);

  // a store that is away, for a while and then for longer than a lease; a machine that was suspended
  a.network.disconnect();
  failed(a.locks.acquire("away", { wait: "1s" }));
  await store.advance(5_000);
  a.network.reconnect();
  await store.advance(5_000);
  for (const { network } of [a, b]) network.disconnect();
  await store.advance(15_000);
  for (const { network } of [a, b]) network.reconnect();
  await store.advance(5_000);
  store.clock.suspend(60_000);
  await store.advance(20_000);
  if ("harness" in store) {
    const { harness } = store as Awaited<ReturnType<typeof createFaultyServer>>;
    harness.crash();
    await harness.start();
    await store.advance(5_000);
    failed(managerB.request("free", { ifAvailable: true }, add));
    await store.advance(60_000);
    add(harness.logLines);
  }
  for (const election of elections) failed(election.close());
  failed(a.locks.close());
  await store.advance(15_000);
  failed(managerA.request("web", add));
  await store.advance(0);

  expect([...seenEvents].sort()).toEqual([...EVENT_NAMES].sort());
  const found = text();
  for (const word of ["scheduler", "was stolen", "LOCK_TIMEOUT", "reference"]) expect(found, word).toContain(word);
  const secrets = [...store.claimIds, reference];
  expect(secrets.length).toBeGreaterThan(10);
  expect(secrets.filter((secret) => found.includes(secret))).toEqual([]);
});
