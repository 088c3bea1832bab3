import ts from "typescript";
import { afterEach, describe, expect, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { memory } from "../../../src/drivers/memory.ts";
import { currentLock } from "../../../src/wrapping/current-lock.ts";
import { locked } from "../../../src/wrapping/locked.ts";

const opened: Locks[] = [];

function openLocks(): Locks {
  const locks = createLocks(memory());
  opened.push(locks);
  return locks;
}

afterEach(async () => {
  await Promise.all(opened.splice(0).map((locks) => locks.close()));
});

// biome-ignore lint/suspicious/noExplicitAny: classes that are compiled from text
type AnyClass = any;

/** Compiles decorators as a user's TypeScript does, and returns what the source returns. */
function compile(mode: string, source: string, scope: Readonly<Record<string, unknown>> = {}): AnyClass {
  const { outputText } = ts.transpileModule(`const result = (() => {${source}})();`, {
    compilerOptions: { target: ts.ScriptTarget.ES2022, experimentalDecorators: mode === "legacy" },
  });
  const values = { locked, currentLock, locks: openLocks(), ...scope };
  return new Function(...Object.keys(values), `${outputText}\nreturn result;`)(...Object.values(values));
}

describe.each(["standard", "legacy"])("%s decorators", (mode) => {
  test("a template names parameters; this, the arguments and the result pass through", async () => {
    const Orders = compile(
      mode,
      `class Orders {
        prefix = "paid ";
        @locked(locks, { key: "order:#{order.id}", wait: 0 })
        async pay(order, amount) { return [this.prefix, order.id, amount, String(currentLock().keys)]; }
      }
      return Orders;`,
    );
    const orders = new Orders();
    expect(await orders.pay({ id: 3 }, 5)).toEqual(["paid ", 3, 5, "order:3"]);
    expect([orders.pay.name, orders.pay.length]).toEqual(["pay", 2]);
    const results = await Promise.allSettled([orders.pay({ id: 1 }), orders.pay({ id: 1 }), orders.pay({ id: 2 })]);
    expect(results.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
    expect(results[1]).toMatchObject({ reason: { code: "LOCK_TIMEOUT" } });
    await expect(orders.pay({})).rejects.toThrow("#{order.id} of pay() must be");
  });

  test("functions get the instance; several keys; the Locks of the instance", async () => {
    const scope = { getLocks: (self: { locks: Locks }) => self.locks };
    const Accounts = compile(
      mode,
      `class Accounts {
        tenant = "t1";
        constructor(locks) { this.locks = locks; }
        @locked(getLocks, { keys: [(self, from) => self.tenant + ":" + from, "#{1}"] })
        async transfer(from, to) { return currentLock().keys; }
      }
      return Accounts;`,
      scope,
    );
    const locks = openLocks();
    expect(await new Accounts(locks).transfer("b", "a")).toEqual(["a", "t1:b"]);
    await expect(new Accounts(undefined).transfer("b", "a")).rejects.toThrow(TypeError);
  });

  test("without a key it is that of the class that declares the method, also for a subclass and static methods", async () => {
    const { Jobs, Derived } = compile(
      mode,
      `class Jobs${mode} {
        @locked(locks) async nightly() { return currentLock().keys[0]; }
        @locked(locks) static async weekly() { return currentLock().keys[0]; }
      }
      class Derived extends Jobs${mode} { async nightly() { return "derived " + (await super.nightly()); } }
      return { Jobs: Jobs${mode}, Derived };`,
    );
    expect(await new Jobs().nightly()).toBe(`lock.Jobs${mode}.nightly`);
    expect(await new Derived().nightly()).toBe(`derived lock.Jobs${mode}.nightly`);
    expect(await Jobs.weekly()).toBe(`lock.Jobs${mode}.weekly`);
    expect(await Derived.weekly()).toBe(`lock.Jobs${mode}.weekly`);
  });

  test("a class whose name looks like a minifier's must get one", async () => {
    const Class = compile(mode, "class a { @locked(locks) async run() {} } return a;");
    const use = async (): Promise<unknown> => new Class().run();
    await expect(use()).rejects.toThrow('which is "a", as if a minifier had chosen it');
    await expect(use()).rejects.toThrow('@locked(locks, { name: "orders.run" })');
  });

  test("a second class of the same name must have a name; the same source may be loaded again", async () => {
    const name = `Report${mode}`;
    const source = `class ${name} { @locked(locks) async run() { return currentLock().keys[0]; } } return ${name};`;
    const load = (text: string): AnyClass => compile(mode, text);
    await expect(new (load(source))().run()).resolves.toBe(`lock.${name}.run`);
    await expect(new (load(source))().run()).resolves.toBe(`lock.${name}.run`);
    const other = load(`\n\n${source}`);
    await expect((async () => new other().run())()).rejects.toThrow(`another class ${name} has a locked method run()`);
    const named = load(source.replace("locked(locks)", 'locked(locks, { name: "reports.second" })'));
    await expect(new named().run()).resolves.toBe("lock.reports.second");
  });

  test("two classes of one name are told apart also if the program calls locked() at one place for all", async () => {
    const name = `Shared${mode}`;
    const scope = { lockedByOurs: () => locked(openLocks()) };
    const source = `class ${name} { @lockedByOurs() async run() { return currentLock().keys[0]; } } return ${name};`;
    for (let time = 0; time < 2; time++)
      await expect(new (compile(mode, source, scope))().run()).resolves.toBe(`lock.${name}.run`);
    const other = compile(mode, `\n\n${source}`, scope);
    await expect((async () => new other().run())()).rejects.toThrow(`another class ${name} has a locked method run()`);
  });

  test("an instance without its locks: an error that says so", async () => {
    const source = 'class Late { @locked(({ locks }) => locks, { key: "late" }) async run() {} } return Late;';
    const Class = compile(mode, source);
    await expect(new Class().run()).rejects.toThrow("locks of run() must be a Locks, not undefined");
  });

  test("another decorator around it does not hide the class", async () => {
    const wrapAgain = (method: unknown, _second: unknown, third?: PropertyDescriptor): unknown => {
      const original = (third?.value ?? method) as (...args: unknown[]) => unknown;
      const outer = function (this: unknown, ...args: unknown[]): unknown {
        return original.apply(this, args);
      };
      return third === undefined ? outer : { ...third, value: outer };
    };
    const name = `Wrapped${mode}`;
    const Class = compile(
      mode,
      `class ${name} { @wrapAgain @locked(locks) async run() { return currentLock().keys[0]; } } return ${name};`,
      { wrapAgain },
    );
    expect(await new Class().run()).toBe(`lock.${name}.run`);
  });

  test.each([
    [
      "@locked(locks, { key: '#{order}' }) async run(id) {}",
      "#{order} names no parameter of run(), whose parameters are id",
    ],
    ["@locked(locks, { key: 'a', keys: ['b'] }) async run() {}", "only one of the options key, keys and name"],
    ["@locked(locks, { keys: [] }) async run() {}", "locked needs at least one key"],
    ["@locked(locks, { key: 3 }) async run() {}", "key must be a string or a function, not 3"],
    ["@locked(locks, { name: '' }) async run() {}", "name must not be empty"],
    ["@locked(locks, { expiration: 3 }) async run() {}", 'locked has no option "expiration"'],
    ["@locked(locks, { ttl: 3 }) async run() {}", "ttl must be"],
    ["@locked('locks') async run() {}", "locks must be a Locks, or a function that returns one"],
    ["@locked(locks, 'k') async run() {}", "options of locked must be an object"],
    ["@locked(locks) get run() { return 1; }", "@locked() of run must be on a method"],
  ])("%s is refused when the class is defined", (member, message) => {
    expect(() => compile(mode, `class Refused { ${member} } return Refused;`)).toThrow(message);
  });
});

test("a class without a name must get one when an instance is made", () => {
  const Class = compile("standard", "return (() => class { @locked(locks) async run() {} })()");
  expect(() => new Class()).toThrow("the default key of run() needs the name of its class, which is unknown");
});

test("a private method needs a name: no object shows which class declares it", async () => {
  const Class = compile(
    "standard",
    `class Hidden { @locked(locks) async #run() { return 1; } run() { return this.#run(); } } return Hidden;`,
  );
  expect(() => new Class()).toThrow("the default key of #run() needs the name of its class");
});

test("metadata of the method is kept", () => {
  const metadata = new Map<object, Map<unknown, unknown>>();
  const api = {
    getOwnMetadataKeys: (target: object) => [...(metadata.get(target)?.keys() ?? [])],
    getOwnMetadata: (key: unknown, target: object) => metadata.get(target)?.get(key),
    defineMetadata: (key: unknown, value: unknown, target: object) => {
      metadata.set(target, (metadata.get(target) ?? new Map()).set(key, value));
    },
  };
  Object.assign(Reflect, api);
  try {
    const setRoute = (_: object, __: string, { value }: PropertyDescriptor): void =>
      api.defineMetadata("route", "/pay", value);
    const Class = compile("legacy", "class Orders { @locked(locks) @setRoute async pay() {} } return Orders;", {
      setRoute,
    });
    expect(api.getOwnMetadata("route", Class.prototype.pay)).toBe("/pay");
  } finally {
    for (const name of Object.keys(api)) delete (Reflect as unknown as Record<string, unknown>)[name];
  }
});
