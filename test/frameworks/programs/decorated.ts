// @locked() as a user compiles it, by the standard or with experimentalDecorators. Prints what it has seen.

import { connect, currentLock, locked } from "holdfast";

const locks = await connect();

class Orders {
  readonly locks = locks;
  running = 0;
  most = 0;

  @locked(locks, { key: "order:#{orderId}" })
  async pay(orderId: string, amount: number): Promise<string> {
    this.most = Math.max(this.most, ++this.running);
    await new Promise(setImmediate);
    this.running--;
    return `${orderId} ${currentLock().keys} ${amount}`;
  }

  @locked(locks, { keys: ["a:#{0}", (_self: unknown, _from: string, to: string) => `a:${to}`] })
  static async transfer(_from: string, _to: string): Promise<readonly string[]> {
    return currentLock().keys;
  }

  @locked((self: Orders) => self.locks, { name: "Orders" })
  async nightly(): Promise<string> {
    return String(currentLock().keys);
  }

  @locked(locks, { name: "Orders", key: (_self: unknown, order: { readonly id: string }) => order.id })
  async ship<Order extends { readonly id: string }>(order: Order): Promise<Order> {
    console.log(String(currentLock().keys));
    return order;
  }

  @locked(locks, { name: "Orders" })
  static async map<In, Out>(input: In, change: (input: In) => Out): Promise<Out> {
    return change(input);
  }

  // @ts-expect-error the id is a number
  @locked(locks, { key: (_self: Orders, id: string) => id })
  async wrong(_id: number): Promise<void> {}

  // @ts-expect-error the class has no member "tenant"
  @locked(locks, { key: (self: { readonly tenant: string }) => self.tenant })
  async wrongInstance(): Promise<void> {}

  // @ts-expect-error the method returns text
  @locked(locks, { key: "busy", onBusy: () => 5 })
  async wrongResult(): Promise<string> {
    return "";
  }
}

// not called, since that would throw
export function declareRefused(): unknown {
  return class {
    // @ts-expect-error neither key nor name
    @locked(locks, { wait: 0 })
    async withoutKey(): Promise<void> {}
  };
}

const orders = new Orders();
console.log((await Promise.all([orders.pay("1", 2), orders.pay("1", 3)])).join(", "));
console.log(`most at once: ${orders.most}`);
console.log((await Orders.transfer("x", "y")).join(", "));
console.log(await orders.nightly());
const order: { readonly id: string; readonly total: number } = await orders.ship({ id: "7", total: 9 });
const total: string = await Orders.map(order, ({ total }) => `total ${total}`);
console.log(total);
console.log(orders.pay.name, orders.pay.length);
await locks.close();
