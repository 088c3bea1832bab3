// A relay whose store is slow: what its clients do between a call of the store and its answer.

import { expect, test } from "vitest";
import { memory } from "../../src/drivers/memory.ts";
import { newId } from "../../src/ids.ts";
import { openRelay } from "../../src/server/relay.ts";
import { Session } from "../../src/server/session.ts";
import type { Claim, Driver } from "../../src/spi/driver.ts";
import { leakCheck } from "../support/leak-check.ts";
import { claimOf, cleanUp, held, later } from "./support.ts";
import { FakeClock, turns } from "./world.ts";

leakCheck();
cleanUp();

/** Answers that are held back until somebody lets them go. */
class Brake {
  readonly #held: (() => void)[] = [];
  on = false;

  async pass<T>(answer: T | Promise<T>): Promise<T> {
    const late = await answer;
    if (this.on) await new Promise<void>((resolve) => this.#held.push(resolve));
    return late;
  }

  release(): void {
    this.on = false;
    for (const resolve of this.#held.splice(0)) resolve();
  }
}

async function slowRelay(change: (inner: Driver, brake: Brake) => Partial<Driver>) {
  const inner = memory();
  const brake = new Brake();
  const clock = new FakeClock();
  const driver = { ...inner, ...change(inner, brake) } as Driver;
  const relay = await openRelay({ driver, clock, sessionMs: 30_000, probe: () => "unknown", log: () => undefined });
  later(() => relay.close());
  const session = (): Session =>
    new Session({ session: newId(), label: "", pid: null, pidStart: null }, false, clock.now());
  return { ...relay, inner, brake, clock, session };
}

test("the late answer of a call whose client had gone does not give back what the client has come back for", async () => {
  let fails = true;
  const it = await slowRelay((inner, brake) => ({
    claim: (claim) => (brake.on ? brake.pass(inner.claim(claim)) : inner.claim(claim)),
    release: (claims: readonly Claim[]) => {
      if (fails) return Promise.reject(new Error("timed out"));
      return inner.release(claims) as never;
    },
  }));
  const { backend, brake, inner } = it;
  const mine = it.session();
  const claim = claimOf("k");
  brake.on = true;
  const first = backend.claim(mine, claim);
  await turns();
  backend.end(mine, "waiting");
  await turns();
  brake.on = false;
  held(await backend.claim(mine, claim));
  fails = false;
  brake.release();
  await first;
  await turns();
  expect(await inner.list({ prefix: "" }, 10)).toHaveLength(1);
});

test("a lock that is being taken up by its reference does not end with who did so and died before the answer", async () => {
  const { backend, brake, inner, session } = await slowRelay((of, slow) => ({
    renew: (claims) => slow.pass(of.renew(claims)),
  }));
  const claim = claimOf("k");
  held(await inner.claim(claim));
  await inner.detach?.([claim]);
  const borrower = session();
  brake.on = true;
  const renewed = backend.renew(borrower, [{ id: claim.id, claim }]);
  await turns();
  borrower.ended = true;
  backend.end(borrower, "all");
  brake.release();
  await renewed;
  await turns();
  expect(await inner.list({ prefix: "" }, 10)).toHaveLength(1);
});

test("what ended while it was being detached is not said to be detached", async () => {
  const { backend, brake, inner, session } = await slowRelay((of, slow) => ({
    detach: (claims) => slow.pass(of.detach?.(claims) as Promise<boolean[]>),
  }));
  const claim = claimOf("k");
  const mine = session();
  held(await backend.claim(mine, claim));
  brake.on = true;
  const detached = backend.detach(mine, [claim.id]);
  await turns();
  backend.end(mine, "all");
  await turns();
  expect(await inner.list({ prefix: "" }, 10)).toHaveLength(0);
  brake.release();
  expect(await detached).toEqual([false]);
});
