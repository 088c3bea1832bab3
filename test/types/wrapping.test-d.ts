/** What the compiler knows of wrapped functions and methods. Compiled, not run. */

import { expectTypeOf, test } from "vitest";
import type { Lock, Locks } from "../../src/index.ts";
import { currentLock, locked } from "../../src/index.ts";

declare const locks: Locks;

interface Order {
  readonly id: string;
}

test("wrap() keeps the parameters and makes the result a promise", () => {
  const pay = locks.wrap("order:#{orderId}", (orderId: string, amount: number) => `${orderId} ${amount}`);
  expectTypeOf(pay).parameters.toEqualTypeOf<[orderId: string, amount: number]>();
  expectTypeOf(pay("o", 1)).resolves.toEqualTypeOf<string>();
  expectTypeOf(currentLock()).toEqualTypeOf<Lock>();
  // @ts-expect-error it takes what the function takes
  void pay(1, 1);
});

test("a key function gets the parameters of the function, or the first of them", () => {
  const fn = async (order: Order, _amount: number): Promise<number> => order.id.length;
  locks.wrap((order) => `order:${order.id}`, fn);
  locks.wrap((order: Order) => `order:${order.id}`, { wait: 0, onBusy: () => 0 }, fn);
  locks.wrap([(order) => order.id, "#{1}"], fn);
  // @ts-expect-error the first parameter is an order
  locks.wrap((id: string) => id, fn);
  // @ts-expect-error a key is text
  locks.wrap((order) => order, fn);
  // @ts-expect-error the result of onBusy must fit
  locks.wrap("k", { onBusy: () => "busy" }, fn);
  // @ts-expect-error an option that does not exist
  locks.wrap("k", { expiration: 120 }, fn);
});

test("@locked() checks key functions against the method", () => {
  class Orders {
    readonly locks = locks;
    readonly tenant = "t";

    @locked(locks, { name: "Orders" })
    async nightly(): Promise<void> {}

    @locked((self: Orders) => self.locks, { key: (self: Orders, id: string) => `${self.tenant}:${id}` })
    async pay(id: string, amount: number): Promise<string> {
      return `${id} ${amount}`;
    }

    @locked(locks, { key: "order:#{id}", wait: 0, onBusy: () => null })
    async tryPay(id: string): Promise<string | null> {
      return id;
    }

    @locked(locks, { keys: ["#{0}", (_self: unknown, _from: string, to: string) => to] })
    static async transfer(_from: string, _to: string): Promise<void> {}

    // @ts-expect-error the id is a number
    @locked(locks, { key: (_self: Orders, id: string) => id })
    async wrongParameter(_id: number): Promise<void> {}

    // @ts-expect-error the method has no parameter
    @locked(locks, { key: (_self: Orders, id: string) => id })
    async missingParameter(): Promise<void> {}

    // @ts-expect-error the instance is another one
    @locked((self: { readonly other: Locks }) => self.other, { name: "Orders" })
    async wrongInstance(): Promise<void> {}

    // @ts-expect-error the method returns no promise
    @locked(locks, { name: "Orders" })
    sync(): number {
      return 1;
    }

    // @ts-expect-error the method does not return null
    @locked(locks, { onBusy: () => null })
    async wrongBusy(): Promise<string> {
      return "";
    }
  }
  expectTypeOf(new Orders().pay).toEqualTypeOf<(id: string, amount: number) => Promise<string>>();
});

test("@locked() needs a key or a name, and not both of key and keys", () => {
  class Jobs {
    @locked(locks, { name: "Jobs", key: "#{id}" })
    async run(id: string): Promise<string> {
      return id;
    }

    // @ts-expect-error no options
    @locked(locks)
    async none(): Promise<void> {}

    // @ts-expect-error neither key nor name
    @locked(locks, { wait: 0 })
    async neither(): Promise<void> {}

    // @ts-expect-error key and keys
    @locked(locks, { key: "a", keys: ["b"] })
    async both(): Promise<void> {}
  }
  expectTypeOf(new Jobs().run).toEqualTypeOf<(id: string) => Promise<string>>();
});

test("@locked() takes generic and overloaded methods, and keeps their types", () => {
  interface Query extends Promise<number> {
    limit(count: number): Query;
  }

  class Repository<Row extends Order> {
    @locked(locks, { key: (_self: unknown, order: Order) => order.id })
    async save<Saved extends Row>(row: Saved): Promise<Saved> {
      return row;
    }

    @locked(locks, { name: "Repository", key: "#{0}" })
    async map<In, Out>(input: In, change: (input: In) => Out): Promise<Out> {
      return change(input);
    }

    @locked(locks, { key: "#{ids}", onBusy: () => null })
    async find<Found extends Row>(..._ids: readonly string[]): Promise<Found | null> {
      return null;
    }

    load(id: string): Promise<Row>;
    load(id: number, fresh: boolean): Promise<Row | null>;
    @locked(locks, { key: "#{id}" })
    async load(_id: string | number, _fresh?: boolean): Promise<Row | null> {
      return null;
    }

    @locked(locks, { name: "Repository" })
    static async create<Created extends Order>(order: Created): Promise<Repository<Created>> {
      return new Repository<Created>().with(order);
    }

    with(_row: Row): this {
      return this;
    }

    // @ts-expect-error the constraint of the parameter is a number
    @locked(locks, { key: (_self: unknown, id: string) => id })
    async wrong<Id extends number>(_id: Id): Promise<void> {}

    // @ts-expect-error callers get a promise, and no query
    @locked(locks, { name: "Repository" })
    query(): Query {
      return Promise.resolve(1) as Query;
    }
  }
  const repository = new Repository<Order & { readonly total: number }>();
  expectTypeOf(repository.map("1", Number)).toEqualTypeOf<Promise<number>>();
  expectTypeOf(repository.load(1, true)).resolves.toExtend<Order | null>();
  expectTypeOf(Repository.create({ id: "1", total: 2 })).resolves.toEqualTypeOf<
    Repository<{ id: string; total: number }>
  >();
});
