// A proxy with a slow store: what its clients do between a call to the store and its answer.

import { expect, test } from "vitest";
import { memory } from "../../../src/drivers/memory.ts";
import { openProxyBackend } from "../../../src/server/proxy/proxy-backend.ts";
import { Session } from "../../../src/server/session/session.ts";
import type { Driver, Release } from "../../../src/spi/driver.ts";
import { randomId } from "../../../src/util/ids.ts";
import { FakeClock, flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { cleanUpAfterEach, expectHeld, makeClaim, onCleanup } from "../../support/server-fixture.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

/** Answers that are delayed until the test lets them through. */
class CallGate {
  readonly #held: (() => void)[] = [];
  isClosed = false;

  async wait<T>(answer: T | Promise<T>): Promise<T> {
    const lateAnswer = await answer;
    if (this.isClosed) await new Promise<void>((resolve) => this.#held.push(resolve));
    return lateAnswer;
  }

  open(): void {
    this.isClosed = false;
    for (const resolve of this.#held.splice(0)) resolve();
  }
}

async function createSlowProxy(change: (inner: Driver, gate: CallGate) => Partial<Driver>) {
  const inner = memory();
  const gate = new CallGate();
  const clock = new FakeClock();
  const driver = { ...inner, ...change(inner, gate) } as Driver;
  const relay = await openProxyBackend({
    driver,
    clock,
    sessionMs: 30_000,
    probe: () => "unknown",
    log: () => undefined,
  });
  onCleanup(() => relay.close());
  const session = (): Session =>
    new Session({ session: randomId(), label: "", pid: null, pidStart: null }, false, clock.now());
  return { ...relay, inner, gate, clock, session };
}

test("the late answer of a call whose client had disconnected does not release what the returned client has claimed again", async () => {
  let fails = true;
  const it = await createSlowProxy((inner, gate) => ({
    claim: (claim) => (gate.isClosed ? gate.wait(inner.claim(claim)) : inner.claim(claim)),
    release: (releases: readonly Release[]) => {
      if (fails) return Promise.reject(new Error("timed out"));
      return inner.release(releases) as never;
    },
  }));
  const { backend, gate, inner } = it;
  const ownSession = it.session();
  const claim = makeClaim("k");
  gate.isClosed = true;
  const first = backend.claim(ownSession, claim);
  await flushEventLoop();
  backend.endClaims(ownSession, "waiting");
  await flushEventLoop();
  gate.isClosed = false;
  expectHeld(await backend.claim(ownSession, claim));
  fails = false;
  gate.open();
  await first;
  await flushEventLoop();
  expect((await inner.list({ prefix: "" }, { max: 10 })).items).toHaveLength(1);
});

test("a lock that is being attached by its reference does not end with a client that dies before the answer", async () => {
  const { backend, gate, inner, session } = await createSlowProxy((of, slow) => ({
    renew: (claims) => slow.wait(of.renew(claims)),
  }));
  const claim = makeClaim("k");
  expectHeld(await inner.claim(claim));
  await inner.detach?.([claim]);
  const otherSession = session();
  gate.isClosed = true;
  const pendingRenewal = backend.renew(otherSession, [{ id: claim.id, claim }]);
  await flushEventLoop();
  otherSession.end();
  backend.endClaims(otherSession, "all");
  gate.open();
  await pendingRenewal;
  await flushEventLoop();
  expect((await inner.list({ prefix: "" }, { max: 10 })).items).toHaveLength(1);
});

test("a claim that ended while it was being detached is not answered as detached", async () => {
  const { backend, gate, inner, session } = await createSlowProxy((of, slow) => ({
    detach: (claims) => slow.wait(of.detach?.(claims) as Promise<boolean[]>),
  }));
  const claim = makeClaim("k");
  const ownSession = session();
  expectHeld(await backend.claim(ownSession, claim));
  gate.isClosed = true;
  const detached = backend.detach(ownSession, [claim.id]);
  await flushEventLoop();
  backend.endClaims(ownSession, "all");
  await flushEventLoop();
  expect((await inner.list({ prefix: "" }, { max: 10 })).items).toHaveLength(0);
  gate.open();
  expect(await detached).toEqual([false]);
});
