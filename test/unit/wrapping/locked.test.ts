import { transformSync } from "esbuild";
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

  test("name: the key is lock.<name>.<method>, and # and the key behind it; whatever the class is called", async () => {
    const { Jobs, Derived } = compile(
      mode,
      `class a {
        @locked(locks, { name: "Orders" }) async nightly() { return currentLock().keys; }
        @locked(locks, { name: "Orders" }) static async weekly() { return currentLock().keys; }
        @locked(locks, { name: "Orders", key: "#{orderId}" }) async pay(orderId) { return currentLock().keys; }
        @locked(locks, { name: "Orders", key: (_self, id) => "id:" + id }) async ship(id) { return currentLock().keys; }
        @locked(locks, { name: "Orders", keys: ["#{from}", "#{to}"] }) async move(from, to) { return currentLock().keys; }
        @locked(locks, { name: "Orders", key: () => undefined }) async lose() {}
      }
      class b extends a { async nightly() { return ["derived", ...(await super.nightly())]; } }
      return { Jobs: a, Derived: b };`,
    );
    const jobs = new Jobs();
    expect(await jobs.nightly()).toEqual(["lock.Orders.nightly"]);
    expect(await new Derived().nightly()).toEqual(["derived", "lock.Orders.nightly"]);
    expect(await Jobs.weekly()).toEqual(["lock.Orders.weekly"]);
    expect(await jobs.pay("7#1")).toEqual(["lock.Orders.pay#7%231"]);
    expect(await jobs.ship("7")).toEqual(["lock.Orders.ship#id:7"]);
    expect(await jobs.move("b", "a")).toEqual(["lock.Orders.move#a", "lock.Orders.move#b"]);
    await expect(jobs.lose()).rejects.toThrow("key must be a string, not undefined");
  });

  test("a module that is loaded again, with lines above the class, has the same keys", async () => {
    const source = `class R { @locked(locks, { name: "Report" }) async run() { return currentLock().keys; } } return R;`;
    for (const text of [source, source, `\n\n${source}`])
      expect(await new (compile(mode, text))().run()).toEqual(["lock.Report.run"]);
  });

  test("an instance without its locks: an error that says so", async () => {
    const source = 'class Late { @locked(({ locks }) => locks, { key: "late" }) async run() {} } return Late;';
    const Class = compile(mode, source);
    await expect(new Class().run()).rejects.toThrow(
      "locks of run() must be what connect() or createLocks() returns, not undefined",
    );
  });

  test("another decorator around it", async () => {
    const wrapAgain = (method: unknown, _second: unknown, third?: PropertyDescriptor): unknown => {
      const original = (third?.value ?? method) as (...args: unknown[]) => unknown;
      const outer = function (this: unknown, ...args: unknown[]): unknown {
        return original.apply(this, args);
      };
      return third === undefined ? outer : { ...third, value: outer };
    };
    const Class = compile(
      mode,
      `class Wrapped { @wrapAgain @locked(locks, { name: "W" }) async run() { return currentLock().keys[0]; } } return Wrapped;`,
      { wrapAgain },
    );
    expect(await new Class().run()).toBe("lock.W.run");
  });

  test.each([
    [
      "@locked(locks, { key: '#{order}' }) async run(id) {}",
      "#{order} names no parameter of run(), whose parameters are id",
    ],
    [
      "@locked(locks, { key: 'a', keys: ['b'] }) async run() {}",
      "@locked() of run takes only one of the options key and keys",
    ],
    ["@locked(locks, { keys: [] }) async run() {}", "locked needs at least one key"],
    ["@locked(locks, { key: 3 }) async run() {}", "key must be a string or a function, not 3"],
    ["@locked(locks) async run() {}", "options of locked must be an object, not undefined"],
    ["@locked(locks, {}) async run() {}", "@locked() of run needs the option key, such as"],
    ["@locked(locks, { wait: 0, key: undefined }) async run() {}", '"lock.Orders.run"'],
    ["@locked(locks, { keys: 'a' }) async run() {}", 'keys must be an array, not "a"'],
    ["@locked(locks, { name: '' }) async run() {}", "name must not be empty"],
    ["@locked(locks, { name: 3 }) async run() {}", "name must be a string, not 3"],
    ["@locked(locks, { name: 'a#{0}' }) async run() {}", 'name must not contain "#"'],
    ["@locked(locks, { name: 'a', key: 3 }) async run() {}", "key must be a string or a function, not 3"],
    ["@locked(locks, { name: 'a', key: '' }) async run() {}", "key must not be empty"],
    ["@locked(locks, { name: 'a', keys: [] }) async run() {}", "locked needs at least one key"],
    [
      "@locked(locks, { name: 'a' }) async [Symbol.iterator]() {}",
      "has no name for a key: pass key or keys without name",
    ],
    ["@locked(locks, { key: 'a', expiration: 3 }) async run() {}", 'locked has no option "expiration"'],
    ["@locked(locks, { key: 'a', ttl: 3 }) async run() {}", "ttl must be"],
    [
      "@locked('locks') async run() {}",
      "locks must be what connect() or createLocks() returns, or a function that returns it",
    ],
    ["@locked(locks, 'k') async run() {}", "options of locked must be an object"],
    ["@locked(locks, { name: 'a' }) get run() { return 1; }", "@locked() of run must be on a method"],
  ])("%s is refused when the class is defined", (member, message) => {
    expect(() => compile(mode, `class Refused { ${member} } return Refused;`)).toThrow(message);
  });
});

test("every build of a class has the same keys: by tsc and by esbuild, minified or not, also if the class names itself", async () => {
  const source = `
    export class Orders {
      static create() { return new Orders(); }
      @locked(locks, { name: "Orders" }) async nightly() { return currentLock().keys; }
      @locked(locks, { name: "Orders", key: "#{0}" }) async pay(id: string) { return currentLock().keys; }
    }`;
  const { ES2022 } = ts.ScriptTarget;
  const builds = [
    ts.transpileModule(source, { compilerOptions: { target: ES2022, module: ts.ModuleKind.CommonJS } }).outputText,
    ...[false, true].map(
      (minify) => transformSync(source, { loader: "ts", target: "es2022", format: "cjs", minify }).code,
    ),
  ];
  const locks = openLocks();
  for (const build of builds) {
    const module: AnyClass = { exports: {} };
    new Function("module", "exports", "locked", "currentLock", "locks", build)(
      module,
      module.exports,
      locked,
      currentLock,
      locks,
    );
    const orders = module.exports.Orders.create();
    expect(await orders.nightly()).toEqual(["lock.Orders.nightly"]);
    expect(await orders.pay("7")).toEqual(["lock.Orders.pay#7"]);
  }
});

test("a private method needs a key: minifiers change its name", async () => {
  const load = (options: string): AnyClass =>
    compile(
      "standard",
      `class Hidden { @locked(locks, ${options}) async #run() { return 1; } run() { return this.#run(); } } return Hidden;`,
    );
  expect(() => load('{ name: "Hidden" }')).toThrow("@locked() of #run has no name for a key");
  expect(await new (load('{ key: "hidden" }'))().run()).toBe(1);
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
    const Class = compile(
      "legacy",
      "class Orders { @locked(locks, { key: 'k' }) @setRoute async pay() {} } return Orders;",
      {
        setRoute,
      },
    );
    expect(api.getOwnMetadata("route", Class.prototype.pay)).toBe("/pay");
  } finally {
    for (const name of Object.keys(api)) delete (Reflect as unknown as Record<string, unknown>)[name];
  }
});
