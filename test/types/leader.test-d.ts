/** What the compiler knows of elections and terms. Compiled, not run. */

import { expectTypeOf, test } from "vitest";
import type { FencedLock } from "../../src/fencing/index.ts";
import type { Election, Leader, Locks, Term } from "../../src/index.ts";

declare const locks: Locks;

test("a loop over an election yields terms, which fence() takes like locks", async () => {
  const election = locks.leader("scheduler", { ttl: "10s", label: "a", maxHold: undefined, signal: undefined });
  expectTypeOf(election).toEqualTypeOf<Election>();
  for await (const term of election) {
    expectTypeOf(term).toEqualTypeOf<Term>();
    expectTypeOf(term).toExtend<FencedLock>();
    expectTypeOf(term).toExtend<AsyncDisposable>();
    expectTypeOf(term.token).toEqualTypeOf<bigint>();
    expectTypeOf(term.signal).toEqualTypeOf<AbortSignal>();
    expectTypeOf(term.resign()).resolves.toEqualTypeOf<boolean>();
    // @ts-expect-error leadership cannot be detached
    void term.detach();
    // @ts-expect-error a term is not bound to an async flow
    void term.run(() => undefined);
  }
});

test("there may be no leader; a request to resign returns nothing to wait for", async () => {
  const election = locks.leader("scheduler");
  expectTypeOf(election.current()).resolves.toEqualTypeOf<Leader | null>();
  for await (const leader of election.observe({ interval: "5s" })) expectTypeOf(leader).toEqualTypeOf<Leader | null>();
  expectTypeOf(election.resign()).toEqualTypeOf<void>();
  // @ts-expect-error a leader shows no claim id
  void election.current().then((leader) => leader?.id);
});

test("a candidate waits without a limit", () => {
  // @ts-expect-error it has no wait
  locks.leader("scheduler", { wait: "5s" });
});
