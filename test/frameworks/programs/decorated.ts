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

  @locked((self: Orders) => self.locks)
  async nightly(): Promise<string> {
    return String(currentLock().keys);
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

const orders = new Orders();
console.log((await Promise.all([orders.pay("1", 2), orders.pay("1", 3)])).join(", "));
console.log(`most at once: ${orders.most}`);
console.log((await Orders.transfer("x", "y")).join(", "));
console.log(await orders.nightly());
console.log(orders.pay.name, orders.pay.length);
await locks.close();
