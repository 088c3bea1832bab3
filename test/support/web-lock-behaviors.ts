/**
 * What the Web Locks API promises within one context, by the files of the web-platform tests that check it. Facts of the
 * standard only, so that `navigator.locks` of Node 24 passes, too.
 */

import assert from "node:assert/strict";
import { describe, expect, test } from "vitest";
import { until } from "../../src/testing/until.ts";
import type { WebLock, WebLockManager, WebLockSnapshot } from "../../src/web-locks/index.ts";

type Modes = readonly ("exclusive" | "shared")[];

interface Gate {
  readonly opened: Promise<string>;
  open(): void;
}

function createGate(): Gate {
  let open = (): void => {};
  const opened = new Promise<string>((resolve) => {
    open = () => resolve("the result");
  });
  return { opened, open };
}

function modesOf(snapshot: WebLockSnapshot, name: string): { readonly held: Modes; readonly pending: Modes } {
  const select = (infos: WebLockSnapshot["held"]): Modes =>
    infos.filter((info) => info.name === name).map(({ mode }) => mode);
  return { held: select(snapshot.held), pending: select(snapshot.pending) };
}

let names = 0;
const uniqueName = (): string => `resource ${++names}`;

const isDomException = (name: string) => (error: unknown) => error instanceof DOMException && error.name === name;

/** What an implementation is known to do wrong. */
type KnownFault = "a thrown thenable is called" | "an aborted request stays pending";

/** Defines the tests. `open` returns a manager of a context that is used by one test. */
export function defineWebLockTests(open: () => Promise<WebLockManager>, faults: readonly KnownFault[] = []): void {
  /** Requests a lock, and waits until its callback runs. */
  async function hold(manager: WebLockManager, name: string, options: object = {}) {
    const gate = createGate();
    let lock: WebLock | null | undefined;
    const released = manager.request(name, options, (granted) => {
      lock = granted;
      return gate.opened;
    });
    released.catch(() => undefined);
    await until(() => lock !== undefined, { within: 5_000, what: "the callback" });
    return { lock: lock as WebLock, release: gate.open, released };
  }

  /** Waits until the requests for the name are those. */
  async function waitForModes(manager: WebLockManager, name: string, held: Modes, pending: Modes): Promise<void> {
    const expected = { held, pending };
    let modes: unknown;
    await until(
      async () => {
        modes = modesOf(await manager.query(), name);
        return JSON.stringify(modes) === JSON.stringify(expected);
      },
      { within: 5_000, what: JSON.stringify(expected) },
    ).catch((error: unknown) => {
      assert.deepEqual(modes, expected, String(error));
    });
  }

  describe("acquire", () => {
    test("a name and a callback are required, and the callback must be a function", async () => {
      const request = untyped(await open());
      const name = uniqueName();
      for (const args of [
        [],
        [name],
        [name, undefined],
        [name, null],
        [name, 123],
        [name, "abc"],
        [name, []],
        [name, {}],
      ])
        await assert.rejects(request(...args), TypeError, JSON.stringify(args));
      await assert.rejects(request(name, new Promise(() => {})), TypeError);
      await assert.rejects(request(name, {}, null), TypeError);
    });

    test("mode is exclusive or shared, by default exclusive; options may be undefined", async () => {
      const manager = await open();
      const name = uniqueName();
      for (const mode of ["foo", null, ""])
        await assert.rejects(
          untyped(manager)(name, { mode }, () => {}),
          TypeError,
        );
      assert.equal(await manager.request(name, { mode: "exclusive" }, (lock) => lock?.mode), "exclusive");
      assert.equal(await manager.request(name, { mode: "shared" }, (lock) => lock?.mode), "shared");
      assert.equal(await manager.request(name, (lock) => lock?.mode), "exclusive");
      assert.equal(await untyped(manager)(name, undefined, (lock: WebLock) => lock.name), name);
    });

    test.each([
      [{ steal: true, ifAvailable: true }],
      [{ steal: true, mode: "shared" }],
      [{ steal: true, signal: new AbortController().signal }],
      [{ ifAvailable: true, signal: new AbortController().signal }],
    ])("options that exclude each other: %j", async (options) => {
      await assert.rejects(
        untyped(await open())(uniqueName(), options, unreachable),
        isDomException("NotSupportedError"),
      );
    });

    test("it settles after the promise of the callback, once the lock is released", async () => {
      const manager = await open();
      const gate = createGate();
      const order: string[] = [];
      const returned = manager.request(uniqueName(), () => gate.opened).then(() => order.push("returned"));
      const held = gate.opened.then(() => order.push("held"));
      gate.open();
      await Promise.all([returned, held]);
      assert.deepEqual(order, ["held", "returned"]);
    });

    test.skipIf(faults.includes("a thrown thenable is called"))(
      "what the callback throws, at once or later, is the rejection, even if it has a then()",
      async () => {
        const manager = await open();
        const error = { name: "test" };
        let isCalled = false;
        // biome-ignore lint/suspicious/noThenProperty: what is thrown must not be taken for a promise
        const thenable = { then: () => (isCalled = true) };
        const name = uniqueName();
        const fail = (value: unknown) => () => {
          throw value;
        };
        await expect(manager.request(name, fail(error))).rejects.toBe(error);
        await expect(manager.request(name, async () => fail(error)())).rejects.toBe(error);
        await expect(
          manager.request(name, async () => fail(thenable)()).then(unreachable, (reason) => [reason]),
        ).resolves.toEqual([thenable]);
        assert.equal(isCalled, false);
      },
    );
  });

  describe("held", () => {
    test("a result that is no promise becomes one", async () => {
      const manager = await open();
      const promise = manager.request(uniqueName(), () => 123);
      assert.equal(Promise.resolve(promise), promise);
      assert.equal(await promise, 123);
    });

    test.each(["resolves", "rejects"])("the lock is held until the callback's promise %s", async (how) => {
      const manager = await open();
      const name = uniqueName();
      const order: string[] = [];
      const gate = createGate();
      const first = manager.request(name, async () => {
        await gate.opened;
        order.push("first is over");
        if (how === "rejects") throw new Error("expected");
      });
      const second = manager.request(name, () => order.push("second runs"));
      await waitForModes(manager, name, ["exclusive"], ["exclusive"]);
      gate.open();
      await Promise.allSettled([first, second]);
      assert.deepEqual(order, ["first is over", "second runs"]);
    });

    test("a lock that is held is not free for the same client", async () => {
      const manager = await open();
      const name = uniqueName();
      const inner = await manager.request(name, () => manager.request(name, { ifAvailable: true }, (lock) => lock));
      assert.equal(inner, null);
    });
  });

  describe("ifAvailable", () => {
    test("a free lock is granted, beside others and after its release", async () => {
      const manager = await open();
      const [first, second] = [uniqueName(), uniqueName()];
      const granted: (string | undefined)[] = [];
      await manager.request(first, async () => {
        await manager.request(second, { ifAvailable: true }, (lock) => granted.push(lock?.name));
        await manager.request(second, { ifAvailable: true }, (lock) => granted.push(lock?.name));
      });
      await manager.request(first, { ifAvailable: true }, (lock) => granted.push(lock?.name));
      assert.deepEqual(granted, [second, second, first]);
    });

    test.each([
      ["exclusive", "exclusive", false],
      ["exclusive", "shared", false],
      ["shared", "exclusive", false],
      ["shared", "shared", true],
    ] as const)("held %s, requested %s: granted is %s", async (held, mode, isGranted) => {
      const manager = await open();
      const name = uniqueName();
      const holder = await hold(manager, name, { mode: held });
      assert.equal(await manager.request(name, { mode, ifAvailable: true }, (lock) => lock !== null), isGranted);
      holder.release();
      await holder.released;
    });

    test("the result and the errors of a callback that got null are those of the request", async () => {
      const manager = await open();
      const name = uniqueName();
      const holder = await hold(manager, name);
      const error = { name: "test" };
      assert.equal(await manager.request(name, { ifAvailable: true }, async () => 123), 123);
      const fail = (): never => {
        throw error;
      };
      await expect(manager.request(name, { ifAvailable: true }, fail)).rejects.toBe(error);
      await expect(manager.request(name, { ifAvailable: true }, async () => fail())).rejects.toBe(error);
      holder.release();
      await holder.released;
    });
  });

  describe("modes and order", () => {
    test("exclusive locks of one name are granted in order, and other names do not wait for it", async () => {
      const manager = await open();
      const [a, b] = [uniqueName(), uniqueName()];
      const granted: number[] = [];
      const gate = createGate();
      const requests = [1, 2, 3].map((number) =>
        manager.request(a, async () => {
          if (number === 1) await gate.opened;
          granted.push(number);
        }),
      );
      await manager.request(b, () => granted.push(0));
      gate.open();
      await Promise.all(requests);
      assert.deepEqual(granted, [0, 1, 2, 3]);
    });

    test("exclusive locks of several names are granted in the order of their requests, also from within a callback", async () => {
      const manager = await open();
      const [a, b, c] = [uniqueName(), uniqueName(), uniqueName()];
      const granted: number[] = [];
      const log = (name: string, number: number): Promise<unknown> =>
        manager.request(name, async () => granted.push(number));
      await Promise.all([log(a, 1), log(b, 2), log(c, 3)]);
      assert.deepEqual(granted, [1, 2, 3]);
      granted.length = 0;
      let inner: Promise<unknown> | undefined;
      await manager.request(a, async () => {
        inner = log(a, 1);
        await Promise.all([log(b, 2), log(c, 3)]);
      });
      await inner;
      assert.deepEqual(granted, [2, 3, 1]);
    });

    test("shared locks are held together", async () => {
      const manager = await open();
      const name = uniqueName();
      const holders = [];
      for (let count = 0; count < 3; count++) holders.push(await hold(manager, name, { mode: "shared" }));
      await waitForModes(manager, name, ["shared", "shared", "shared"], []);
      for (const { release } of holders) release();
      await Promise.all(holders.map(({ released }) => released));
    });

    test("shared locks that came after an exclusive one wait for it, and are then granted together", async () => {
      const manager = await open();
      const name = uniqueName();
      const [early, exclusive, late] = [createGate(), createGate(), createGate()];
      const first = [1, 2].map(() => manager.request(name, { mode: "shared" }, () => early.opened));
      const middle = manager.request(name, () => exclusive.opened);
      const last = [1, 2, 3].map(() => manager.request(name, { mode: "shared" }, () => late.opened));
      await waitForModes(manager, name, ["shared", "shared"], ["exclusive", "shared", "shared", "shared"]);
      early.open();
      await Promise.all(first);
      await waitForModes(manager, name, ["exclusive"], ["shared", "shared", "shared"]);
      exclusive.open();
      await middle;
      await waitForModes(manager, name, ["shared", "shared", "shared"], []);
      late.open();
      await Promise.all(last);
    });

    test("two exclusive locks with a shared one between them keep their order", async () => {
      const manager = await open();
      const name = uniqueName();
      const granted: string[] = [];
      const gate = createGate();
      const requests = [
        manager.request(name, () => gate.opened),
        manager.request(name, () => granted.push("second")),
        manager.request(name, { mode: "shared" }, () => granted.push("third")),
        manager.request(name, () => granted.push("fourth")),
      ];
      await waitForModes(manager, name, ["exclusive"], ["exclusive", "shared", "exclusive"]);
      gate.open();
      await Promise.all(requests);
      assert.deepEqual(granted, ["second", "third", "fourth"]);
    });
  });

  describe("signal", () => {
    test("it must be an AbortSignal", async () => {
      const request = untyped(await open());
      for (const signal of ["string", 12.34, false, {}, Symbol("signal"), () => {}, null])
        await assert.rejects(request(uniqueName(), { signal }, unreachable), TypeError);
    });

    test("one that is already aborted rejects with its reason", async () => {
      const manager = await open();
      await assert.rejects(
        manager.request(uniqueName(), { signal: AbortSignal.abort() }, unreachable),
        isDomException("AbortError"),
      );
      await expect(manager.request(uniqueName(), { signal: AbortSignal.abort("why") }, unreachable)).rejects.toBe(
        "why",
      );
    });

    test.skipIf(faults.includes("an aborted request stays pending")).each([undefined, "why"])(
      "aborting a waiting request removes it: reason %s",
      async (reason) => {
        const manager = await open();
        const name = uniqueName();
        const holder = await hold(manager, name);
        const controller = new AbortController();
        const waiting = manager.request(name, { signal: controller.signal }, unreachable);
        const next = manager.request(name, () => "next");
        await waitForModes(manager, name, ["exclusive"], ["exclusive", "exclusive"]);
        controller.abort(reason);
        await expect(waiting).rejects.toBe(controller.signal.reason);
        await waitForModes(manager, name, ["exclusive"], ["exclusive"]);
        holder.release();
        assert.equal(await next, "next");
      },
    );

    test("aborting in the turn of the request prevents it, although the lock is free", async () => {
      const manager = await open();
      const name = uniqueName();
      const controller = new AbortController();
      const request = manager.request(name, { signal: controller.signal }, unreachable);
      controller.abort();
      await assert.rejects(request, isDomException("AbortError"));
      assert.equal(await manager.request(name, () => "free"), "free");
    });

    test("once the lock is held, it has no effect", async () => {
      const manager = await open();
      const controller = new AbortController();
      const holder = await hold(manager, uniqueName(), { signal: controller.signal });
      controller.abort();
      holder.release();
      assert.equal(await holder.released, "the result");
    });
  });

  describe("steal", () => {
    test("a free lock is granted", async () => {
      const manager = await open();
      assert.ok(await manager.request(uniqueName(), { steal: true }, (lock) => lock !== null));
    });

    test("all holders lose the lock: their requests reject with AbortError", async () => {
      const manager = await open();
      const name = uniqueName();
      const holders = [await hold(manager, name, { mode: "shared" }), await hold(manager, name, { mode: "shared" })];
      assert.equal(await manager.request(name, { steal: true }, (lock) => lock?.mode), "exclusive");
      for (const { released } of holders) await assert.rejects(released, isDomException("AbortError"));
      for (const { release } of holders) release();
    });

    test("it overtakes requests that wait; they are granted later, in their order", async () => {
      const manager = await open();
      const name = uniqueName();
      const holder = await hold(manager, name);
      const order: string[] = [];
      const waiting = [1, 2].map((number) => manager.request(name, () => order.push(`waiting ${number}`)));
      await waitForModes(manager, name, ["exclusive"], ["exclusive", "exclusive"]);
      await manager.request(name, { steal: true }, () => order.push("steals"));
      await Promise.all(waiting);
      assert.deepEqual(order, ["steals", "waiting 1", "waiting 2"]);
      await assert.rejects(holder.released, isDomException("AbortError"));
      holder.release();
    });

    test("it takes the lock from a request that was made in the same turn", async () => {
      const manager = await open();
      const name = uniqueName();
      const gate = createGate();
      const order: string[] = [];
      const victim = manager.request(name, () => {
        order.push("first");
        return gate.opened;
      });
      const lost = assert.rejects(victim, isDomException("AbortError"));
      await manager.request(name, { steal: true }, () => order.push("steals"));
      await lost;
      gate.open();
      assert.deepEqual(order, ["first", "steals"]);
    });

    test("of two, the last one wins", async () => {
      const manager = await open();
      const name = uniqueName();
      const holder = await hold(manager, name);
      const thief = await hold(manager, name, { steal: true });
      assert.equal(await manager.request(name, { steal: true }, () => "last"), "last");
      for (const { released, release } of [holder, thief]) {
        await assert.rejects(released, isDomException("AbortError"));
        release();
      }
    });
  });

  describe("query", () => {
    test("without locks, both lists are empty", async () => {
      assert.deepEqual(await (await open()).query(), { held: [], pending: [] });
    });

    test("it shows requests that were made in the same turn", async () => {
      const manager = await open();
      const name = uniqueName();
      const gate = createGate();
      const requests = [manager.request(name, () => gate.opened), manager.request(name, () => {})];
      assert.deepEqual(modesOf(await manager.query(), name), { held: ["exclusive"], pending: ["exclusive"] });
      gate.open();
      await Promise.all(requests);
    });

    test("it shows what is held and what waits, with name, mode and one clientId for the context", async () => {
      const manager = await open();
      const [first, second] = [uniqueName(), uniqueName()];
      const holders = [await hold(manager, first), await hold(manager, second, { mode: "shared" })];
      const waiting = [
        manager.request(first, { mode: "shared" }, () => {}),
        manager.request(first, { mode: "shared" }, () => {}),
      ];
      await waitForModes(manager, first, ["exclusive"], ["shared", "shared"]);
      const { held, pending } = await manager.query();
      assert.deepEqual(modesOf({ held, pending }, second), { held: ["shared"], pending: [] });
      const infos = [...held, ...pending];
      assert.deepEqual(
        infos.map((info) => Object.keys(info).sort()),
        infos.map(() => ["clientId", "mode", "name"]),
      );
      assert.equal(new Set(infos.map(({ clientId }) => clientId)).size, 1);
      for (const { release } of holders) release();
      await Promise.all([...waiting, ...holders.map(({ released }) => released)]);
    });
  });

  describe("names", () => {
    test("one that begins with a hyphen is refused; elsewhere a hyphen is allowed", async () => {
      const manager = await open();
      for (const name of ["-", "-foo"]) {
        await assert.rejects(manager.request(name, unreachable), isDomException("NotSupportedError"));
      }
      assert.equal(await manager.request("x-anything \uffff", (lock) => lock?.name), "x-anything \uffff");
    });
  });
}

function untyped(manager: WebLockManager): (...args: unknown[]) => Promise<unknown> {
  return (...args) => (manager.request as unknown as (...args: unknown[]) => Promise<unknown>).apply(manager, args);
}

function unreachable(): never {
  throw new Error("the callback must not be called");
}
