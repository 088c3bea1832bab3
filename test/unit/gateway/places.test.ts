// Places and references over a store that answers late, loses answers, or has no way to suspend a claim.

import { expect, test } from "vitest";
import { ALLOW_ALL, ANONYMOUS } from "../../../src/auth/access-control.ts";
import { Client } from "../../../src/client/client.ts";
import { parseClientOptions } from "../../../src/client/options.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { NO_REGISTER } from "../../../src/gateway/claim-register.ts";
import { GatewayStore } from "../../../src/gateway/gateway-store.ts";
import { Places } from "../../../src/gateway/places.ts";
import { References } from "../../../src/gateway/references.ts";
import { SharedClient } from "../../../src/gateway/store-clients.ts";
import { decodeReference, encodeReference } from "../../../src/protocol/lock-reference.ts";
import type { Answer, Claim, Driver } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { FakeClock, flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { cleanUpAfterEach, makeClaim, onCleanup } from "../../support/server-fixture.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const NEVER = new AbortController().signal;

/** A gateway on a store in memory, whose driver these members replace. */
class Fixture {
  readonly clock = new FakeClock();
  readonly store: GatewayStore;
  readonly places: Places;
  readonly references: References;
  /** The store as another client sees it. */
  readonly other: Driver;
  readonly calls: string[] = [];
  isDraining = false;

  constructor(overrides: (inner: Driver, calls: string[]) => Partial<Driver> = () => ({}), isOwnServer = false) {
    const shared = memoryStore(this.clock);
    const inner = memory({ store: shared });
    const { calls, clock } = this;
    const counted: Partial<Driver> = {
      claim: (claim) => {
        calls.push("claim");
        return inner.claim(claim);
      },
      renew: (claims) => {
        calls.push("renew");
        return inner.renew(claims);
      },
      release: (releases) => {
        calls.push("release");
        return inner.release(releases);
      },
    };
    const driver = delegate(inner, { ...counted, ...overrides(inner, calls) });
    const client = new Client(driver, parseClientOptions({ clock }), () => 0.5);
    this.store = new GatewayStore({
      access: ALLOW_ALL,
      clients: new SharedClient(client),
      isOwnServer,
      recoveryRemainingMs: () => 0,
      isDraining: () => this.isDraining,
    });
    this.places = new Places(this.store, NO_REGISTER);
    this.references = new References(this.store, this.places, NO_REGISTER);
    this.other = memory({ store: shared });
    onCleanup(() => this.store.close());
  }

  async holdByOther(key: string): Promise<Claim> {
    await this.other.open({
      pushed: () => undefined,
      recheck: () => undefined,
      disconnected: () => undefined,
      reconnected: () => undefined,
      recalled: () => undefined,
      heldTokens: () => null,
    });
    const claim = makeClaim(key);
    await this.other.claim(claim);
    return claim;
  }

  release(claim: Claim): Promise<unknown> {
    return this.other.release([{ claim, hasUnansweredClaim: false }]);
  }

  async stateOf(claim: Claim): Promise<Answer["state"] | undefined> {
    return (await this.other.renew([claim]))[0]?.state;
  }

  /** A claim that was answered with "waiting". */
  async wait(claim: Claim): Promise<void> {
    const outcome = await this.places.claim(ANONYMOUS, claim, this.clock.now(), NEVER);
    expect(outcome.state).toBe("waiting");
  }

  attend(claim: Claim, ms = 5_000): ReturnType<Places["wait"]> {
    return this.places.wait(ANONYMOUS, claim, this.clock.now() + ms, NEVER);
  }
}

/** As most stores: a claim belongs to no session. */
const WITHOUT_DETACH = (): Partial<Driver> => ({ detach: undefined }) as object;

/** The renewals of the gateway, and what detaches its claims, wait until release() is called. */
function gate(): { readonly overrides: (inner: Driver) => Partial<Driver>; close(): void; open(): void } {
  let closed: Promise<void> = Promise.resolve();
  let open = (): void => undefined;
  return {
    overrides: (inner) => ({
      renew: (claims) => closed.then(() => inner.renew(claims)),
      detach: (claims, remainingMs) => closed.then(() => inner.detach?.(claims, remainingMs) ?? []),
    }),
    close() {
      closed = new Promise((resolve) => {
        open = resolve;
      });
    },
    open: () => open(),
  };
}

test("a free lock costs one call, and one that was waited for is renewed, so that its holder has a full lease", async () => {
  const fixture = new Fixture(WITHOUT_DETACH);
  const free = await fixture.places.claim(ANONYMOUS, makeClaim("free"), fixture.clock.now(), NEVER);
  expect(free).toMatchObject({ state: "held", remainingMs: 30_000 });
  expect(fixture.calls).toEqual(["claim"]);
  const holder = await fixture.holdByOther("k");
  const outcome = fixture.places.claim(ANONYMOUS, makeClaim("k"), fixture.clock.now() + 20_000, NEVER);
  await fixture.clock.advance(9_000);
  await fixture.release(holder);
  await flushEventLoop();
  expect(await outcome).toMatchObject({ state: "held", remainingMs: 30_000 });
  expect(fixture.places.size).toBe(0);
});

test("a request that comes within the grace keeps the place, however late the store answers", async () => {
  const slow = gate();
  const fixture = new Fixture(slow.overrides);
  const holder = await fixture.holdByOther("k");
  const claim = makeClaim("k");
  await fixture.wait(claim);
  await fixture.clock.advance(9_990);
  slow.close();
  const outcome = fixture.attend(claim);
  await fixture.release(holder);
  await fixture.clock.advance(2_000);
  slow.open();
  expect(await outcome).toMatchObject({ state: "held", claim: { id: claim.id } });
});

test("a request that fails within the grace does not keep the place for longer", async () => {
  const slow = gate();
  const fixture = new Fixture(slow.overrides);
  await fixture.holdByOther("k");
  const claim = makeClaim("k");
  await fixture.wait(claim);
  await fixture.clock.advance(9_990);
  slow.close();
  const failed = fixture.attend(claim).catch((error: unknown) => error);
  await fixture.clock.advance(25_000);
  expect(await failed).toMatchObject({ code: "STORE" });
  slow.open();
  await fixture.clock.advance(2_000);
  expect(fixture.places.size).toBe(0);
  expect(await fixture.stateOf(claim)).toBe("none");
});

test("a credential that is removed while the store is asked gets no lock", async () => {
  const slow = gate();
  const fixture = new Fixture(slow.overrides);
  const holder = await fixture.holdByOther("k");
  const claim = makeClaim("k");
  await fixture.wait(claim);
  slow.close();
  const principal = { ...ANONYMOUS, isValid: true, can: ANONYMOUS.can };
  const outcome = fixture.places.wait(principal, claim, fixture.clock.now() + 5_000, NEVER);
  await flushEventLoop();
  principal.isValid = false;
  await fixture.release(holder);
  slow.open();
  expect(await outcome).toEqual({ state: "none", reason: "unknown" });
});

test("a granted claim that cannot be detached is lost: it would end with the session of the gateway", async () => {
  const fixture = new Fixture(() => ({ detach: async (claims) => claims.map(() => false) }));
  const claim = makeClaim("k");
  const outcome = await fixture.places.claim(ANONYMOUS, claim, fixture.clock.now(), NEVER);
  expect(outcome).toEqual({ state: "none", reason: "unknown" });
  await flushEventLoop();
  expect(await fixture.stateOf(claim)).not.toBe("held");
});

test("a place that a store in trouble does not withdraw is an error of the store, not an unknown claim", async () => {
  const fixture = new Fixture(() => ({ release: () => new Promise(() => undefined) }));
  await fixture.holdByOther("k");
  const claim = makeClaim("k");
  await fixture.wait(claim);
  const reference = decodeReference(encodeReference([{ claim, firstToken: 0n, token: 0n, prefix: "" }]));
  const released = fixture.references.release(ANONYMOUS, reference).catch((error: unknown) => error);
  await fixture.clock.advance(25_001);
  expect(await released).toMatchObject({ code: "STORE" });
});

test("a claim that another request releases during a call is lost, whatever the store answers", async () => {
  const slow = gate();
  const fixture = new Fixture(slow.overrides);
  await fixture.holdByOther("k");
  const claim = makeClaim("k");
  await fixture.wait(claim);
  slow.close();
  const outcome = fixture.attend(claim);
  await flushEventLoop();
  const reference = decodeReference(encodeReference([{ claim, firstToken: 0n, token: 0n, prefix: "" }]));
  expect((await fixture.references.release(ANONYMOUS, reference)).state).toBe("held");
  slow.open();
  expect(await outcome).toEqual({ state: "none", reason: "released" });
});

test("a claim that was granted to a request whose response was lost is held", async () => {
  const fixture = new Fixture();
  const holder = await fixture.holdByOther("k");
  const claim = makeClaim("k");
  await fixture.wait(claim);
  const first = fixture.attend(claim);
  await flushEventLoop();
  await fixture.release(holder);
  await flushEventLoop();
  const granted = await first;
  expect(granted.state).toBe("held");
  expect(await fixture.attend(claim)).toMatchObject({ state: "held", token: "token" in granted && granted.token });
});

test("two requests at a time: the later one waits, and both learn of a grant that is under way", async () => {
  const slow = gate();
  const fixture = new Fixture(slow.overrides);
  const holder = await fixture.holdByOther("k");
  const claim = makeClaim("k");
  await fixture.wait(claim);
  const first = fixture.attend(claim);
  await flushEventLoop();
  const second = fixture.attend(claim);
  expect((await first).state).toBe("waiting");
  await flushEventLoop();
  slow.close();
  await fixture.clock.advance(4_000);
  await fixture.release(holder);
  await flushEventLoop();
  slow.open();
  expect((await second).state).toBe("held");
});

test("grants pass over a claim for which no request waits, if the store can do that", async () => {
  const suspended: boolean[] = [];
  const fixture = new Fixture(() => ({
    suspend: async (_claims, isSuspended) => void suspended.push(isSuspended),
  }));
  await fixture.holdByOther("k");
  const claim = makeClaim("k");
  await fixture.wait(claim);
  expect(suspended).toEqual([true]);
  const second = fixture.attend(claim, 1_000);
  await flushEventLoop();
  expect(suspended).toEqual([true, false]);
  await fixture.clock.advance(1_000);
  expect((await second).state).toBe("waiting");
  expect(suspended).toEqual([true, false, true]);
});

test("the claim that follows one that was passed on is passed over, too", async () => {
  const suspended: string[] = [];
  const fixture = new Fixture(() => ({
    suspend: async ([claim], isSuspended) => void suspended.push(`${claim?.id} ${isSuspended}`),
  }));
  const holder = await fixture.holdByOther("k");
  const claim = makeClaim("k");
  await fixture.wait(claim);
  const next = makeClaim("k");
  const others = fixture.other.claim(next);
  await fixture.release(holder);
  await others;
  await fixture.clock.advance(1_100);
  expect(await fixture.stateOf(next)).toBe("held");
  expect(suspended).toHaveLength(2);
  expect(suspended[0]).toBe(`${claim.id} true`);
  expect(suspended[1]).toMatch(/ true$/);
  expect(suspended[1]).not.toBe(suspended[0]);
});

test("the claim of a request that has gone is released: while it waits, and while it is being granted", async () => {
  const fixture = new Fixture();
  const holder = await fixture.holdByOther("k");
  const disconnected = new AbortController();
  const claim = makeClaim("k");
  const outcome = fixture.places.claim(ANONYMOUS, claim, fixture.clock.now() + 20_000, disconnected.signal);
  await flushEventLoop();
  disconnected.abort();
  expect(await outcome).toEqual({ state: "none", reason: "unknown" });
  await flushEventLoop();
  expect(await fixture.stateOf(claim)).toBe("none");
  const slow = gate();
  const other = new Fixture(slow.overrides);
  const otherHolder = await other.holdByOther("k");
  const leaving = new AbortController();
  const second = makeClaim("k");
  const lost = other.places.claim(ANONYMOUS, second, other.clock.now() + 20_000, leaving.signal);
  await other.clock.advance(9_000);
  slow.close();
  await other.release(otherHolder);
  await flushEventLoop();
  leaving.abort();
  slow.open();
  await lost;
  await flushEventLoop();
  expect(await other.stateOf(second)).toBe("none");
  await fixture.release(holder);
});

test("a request that is repeated while the lock is being granted keeps it, although the first one has gone", async () => {
  const slow = gate();
  const fixture = new Fixture(slow.overrides);
  const holder = await fixture.holdByOther("k");
  const claim = makeClaim("k");
  await fixture.wait(claim);
  const leaving = new AbortController();
  const first = fixture.places.wait(ANONYMOUS, claim, fixture.clock.now() + 5_000, leaving.signal);
  await flushEventLoop();
  slow.close();
  await fixture.release(holder);
  await flushEventLoop();
  const repeated = fixture.attend(claim);
  await flushEventLoop();
  leaving.abort();
  slow.open();
  expect([(await first).state, (await repeated).state]).toEqual(["held", "held"]);
  await flushEventLoop();
  expect(await fixture.stateOf(claim)).toBe("held");
});

test("a request whose place is granted to another one while the store is asked gets the lock, too", async () => {
  const renewals: (() => void)[] = [];
  const fixture = new Fixture((inner) => ({
    renew: (claims) =>
      new Promise((resolve) => {
        renewals.push(() => resolve(inner.renew(claims)));
      }),
  }));
  const holder = await fixture.holdByOther("k");
  const claim = makeClaim("k");
  await fixture.wait(claim);
  const first = fixture.attend(claim);
  await flushEventLoop();
  renewals.shift()?.();
  await flushEventLoop();
  const second = fixture.attend(claim);
  await flushEventLoop();
  await fixture.release(holder);
  await flushEventLoop();
  expect((await first).state).toBe("held");
  for (let turn = 0; turn < 3; turn++) {
    for (const answer of renewals.splice(0)) answer();
    await flushEventLoop();
  }
  expect((await second).state).toBe("held");
});

test("a lock that is granted between two requests waits for one that is about to come", async () => {
  const slow = gate();
  const fixture = new Fixture(slow.overrides);
  const holder = await fixture.holdByOther("k");
  const claim = makeClaim("k");
  await fixture.wait(claim);
  await fixture.clock.advance(3_000);
  slow.close();
  const next = fixture.attend(claim, 20_000);
  await flushEventLoop();
  await fixture.release(holder);
  await fixture.clock.advance(4_000);
  slow.open();
  expect(await next).toMatchObject({ state: "held", claim: { id: claim.id } });
});

test("two requests for a place of before a restart share one, so that neither withdraws the claim of the other", async () => {
  const fixture = new Fixture(() => ({}), true);
  const holder = await fixture.holdByOther("k");
  const claim = makeClaim("k");
  await fixture.other.claim(claim);
  const leaving = new AbortController();
  const first = fixture.places.wait(ANONYMOUS, claim, fixture.clock.now() + 5_000, leaving.signal);
  const second = fixture.attend(claim);
  await flushEventLoop();
  expect(fixture.places.size).toBe(1);
  expect((await first).state).toBe("waiting");
  leaving.abort();
  await flushEventLoop();
  await fixture.release(holder);
  expect((await second).state).toBe("held");
  await fixture.clock.advance(11_000);
  expect(await fixture.stateOf(claim)).toBe("held");
});

test("an error of the first call is reported at once; a store that does not answer, at the end of the wait", async () => {
  const failing = new Fixture(() => ({ claim: () => Promise.reject(new Error("secret-host is down")) }));
  const claim = failing.places.claim(ANONYMOUS, makeClaim("k"), failing.clock.now() + 20_000, NEVER);
  await expect(claim).rejects.toMatchObject({ code: "STORE", message: expect.not.stringContaining("secret-host") });
  const silent = new Fixture(() => ({ claim: () => new Promise(() => undefined) }));
  const unanswered = silent.places.claim(ANONYMOUS, makeClaim("k"), silent.clock.now() + 20_000, NEVER);
  const settled = unanswered.catch((error: unknown) => error);
  await silent.clock.advance(20_001);
  expect(await settled).toMatchObject({ code: "STORE" });
  expect(silent.places.size).toBe(0);
});

test("while the program stops, waiting requests are answered, and nothing is called any more", async () => {
  const fixture = new Fixture();
  await fixture.holdByOther("k");
  const claim = makeClaim("k");
  const waiting = fixture.places.claim(ANONYMOUS, claim, fixture.clock.now() + 20_000, NEVER);
  await flushEventLoop();
  fixture.places.drain();
  fixture.isDraining = true;
  expect((await waiting).state).toBe("waiting");
  await expect(fixture.attend(claim)).rejects.toMatchObject({ code: "DRAINING" });
  expect(await fixture.stateOf(claim)).toBe("waiting");
});

test("while the program stops, a request whose claim may have no place is refused, and the claim is withdrawn", async () => {
  let answer = (): void => undefined;
  const fixture = new Fixture((inner, calls) => ({
    claim: (claim) =>
      new Promise((resolve) => {
        calls.push("claim");
        answer = () => resolve(inner.claim(claim));
      }),
  }));
  const claim = makeClaim("k");
  const waiting = fixture.places.claim(ANONYMOUS, claim, fixture.clock.now() + 20_000, NEVER);
  const refused = waiting.catch((error: unknown) => error);
  await flushEventLoop();
  fixture.places.drain();
  expect(await refused).toMatchObject({ code: "DRAINING" });
  answer();
  await fixture.clock.advance(1_000);
  expect(fixture.calls).toContain("release");
  expect(fixture.places.size).toBe(0);
});
