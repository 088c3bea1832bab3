// Leaders whose releases are not answered, that stand still, or whose server recovers: what is left is read from the store.

import { describe, expect, test } from "vitest";
import type { Term } from "../../../src/leader/term.ts";
import type { FaultyProcess, FaultyStore } from "../../support/faulty-stores.ts";
import { createFaultyMemory, createFaultyServer } from "../../support/faulty-stores.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { cleanUpAfterEach } from "../../support/server-fixture.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const NAME = "scheduler";
/** Longer than a lease, and than a session without its process. */
const LONG_MS = 40_000;

interface Loop {
  readonly terms: Term[];
  /** Ends the body of the current term. */
  endBody(): void;
}

/** Iterates over an election; each body lasts until endBody(), and ignores the signal of its term. */
function campaign({ locks }: FaultyProcess): Loop {
  const terms: Term[] = [];
  let endBody = (): void => undefined;
  const run = async (): Promise<void> => {
    for await (const term of locks.leader(NAME)) {
      terms.push(term);
      await new Promise<void>((resolve) => {
        endBody = resolve;
      });
    }
  };
  void run();
  return { terms, endBody: () => endBody() };
}

/** Process "a" leads, and "b" waits. */
async function startTwo(store: FaultyStore) {
  const [a, b] = [store.start("a"), store.start("b")];
  const loopA = campaign(a);
  await store.advance(100);
  const loopB = campaign(b);
  await store.advance(100);
  expect(await store.read(NAME)).toEqual(["a holds", "b waits"]);
  return { a, b, loopA, loopB };
}

const first = ({ terms }: Loop): Term => terms[0] as Term;

describe.each([
  ["memory", createFaultyMemory],
  ["a server, with leases", () => createFaultyServer("10s")],
  ["a server, with sessions", () => createFaultyServer("session")],
] as const)("on %s", (_, createStore) => {
  test("a release that is carried out but not answered ends one term: the next one is another candidate's", async () => {
    const store = await createStore();
    const { a, loopA, loopB } = await startTwo(store);
    a.network.loseNextReply("release", 3);
    loopA.endBody();
    await store.advance(LONG_MS);
    expect(first(loopA).signal.reason).toMatchObject({ reason: "released" });
    expect([loopA.terms.length, loopB.terms.length]).toEqual([1, 1]);
    expect(first(loopB).token).toBeGreaterThan(first(loopA).token);
    expect(await store.read(NAME)).toEqual(["b holds", "a waits"]);
    loopB.endBody();
    await store.advance(LONG_MS);
    expect(loopA.terms[1]?.token).toBeGreaterThan(first(loopB).token);
    expect(await store.read(NAME)).toEqual(["a holds", "b waits"]);
  });

  test("a release that does not reach the store keeps the next candidate waiting, and this one does not lead again before", async () => {
    const store = await createStore();
    const { a, loopA, loopB } = await startTwo(store);
    a.network.loseNextCall("release", 3);
    loopA.endBody();
    await store.advance(10);
    expect(first(loopA).signal.aborted).toBe(true);
    expect(await store.read(NAME)).toEqual(["a holds", "b waits"]);
    expect([loopA.terms.length, loopB.terms.length]).toEqual([1, 0]);
    await store.advance(LONG_MS);
    expect([loopA.terms.length, loopB.terms.length]).toEqual([1, 1]);
    expect(await store.read(NAME)).toEqual(["b holds", "a waits"]);
  });

  test.each(["while it leads", "before its release is answered", "before its lost release is repeated"])(
    "a leader that is stopped %s learns that its term is over before it does anything, and takes nothing from the next one",
    async (when) => {
      const store = await createStore();
      const { a, loopA, loopB } = await startTwo(store);
      if (when.includes("lost")) a.network.loseNextCall("release");
      if (when.includes("release")) loopA.endBody();
      if (when.includes("lost")) await store.advance(0);
      a.stop();
      await store.advance(LONG_MS);
      expect(loopB.terms).toHaveLength(1);
      expect(await store.read(NAME)).toEqual(["b holds"]);
      a.continue();
      expect(first(loopA).signal.aborted).toBe(true);
      expect(() => first(loopA).throwIfLost()).toThrow(/lost|released/);
      loopA.endBody();
      await store.advance(LONG_MS);
      expect(await store.read(NAME)).toEqual(["b holds", "a waits"]);
      first(loopB).throwIfLost();
      expect([loopA.terms.length, loopB.terms.length]).toEqual([1, 1]);
    },
  );
});

describe.each(["10s", "session"] as const)("a server that crashes, with ttl %s", (ttl) => {
  test("a leader that reports its term in time keeps it, and nobody else leads", async () => {
    const store = await createFaultyServer(ttl);
    const { loopA, loopB } = await startTwo(store);
    store.harness.crash();
    await store.advance(1_000);
    await store.harness.start();
    await store.advance(2 * LONG_MS);
    expect(store.harness.inspect().isRecovering).toBe(false);
    first(loopA).throwIfLost();
    expect([loopA.terms.length, loopB.terms.length]).toEqual([1, 0]);
    expect(await store.read(NAME)).toEqual(["a holds", "b waits"]);
  });

  test("while a leader is silent nobody leads in the recovery; then the next one, and the silent one is told", async () => {
    const store = await createFaultyServer(ttl);
    const { a, loopA, loopB } = await startTwo(store);
    a.stop();
    store.harness.crash();
    await store.harness.start();
    await store.advance(8_000);
    expect(store.harness.inspect().isRecovering).toBe(true);
    expect(loopB.terms).toEqual([]);
    await store.advance(2 * LONG_MS);
    expect(await store.read(NAME)).toEqual(["b holds"]);
    a.continue();
    expect(first(loopA).signal.aborted).toBe(true);
    loopA.endBody();
    await store.advance(LONG_MS);
    expect(first(loopB).token).toBeGreaterThan(first(loopA).token);
    expect(await store.read(NAME)).toEqual(["b holds", "a waits"]);
  });
});
