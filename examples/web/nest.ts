// NestJS: a service whose method runs under a lock. When the application shuts down, its locks are released.

import "reflect-metadata";
import { EventEmitter, once } from "node:events";
import { ConflictException, Controller, Injectable, Module, Param, Post } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { currentLock } from "holdfast";
import { HoldfastLocks, HoldfastModule, Locked } from "holdfast/nestjs";

const bank = new EventEmitter();

@Injectable()
class Orders {
  @Locked("order:#{orderId}", { wait: 0, maxHold: "1m", onBusy: () => refuse() })
  async pay(orderId: string): Promise<object> {
    const { token, signal } = currentLock();
    bank.emit("asked", token);
    await once(bank, "confirmed", { signal });
    return { paid: orderId };
  }
}

function refuse(): never {
  throw new ConflictException("this order is being paid");
}

@Controller("orders")
class OrdersController {
  constructor(
    private readonly orders: Orders,
    private readonly locks: HoldfastLocks,
  ) {}

  @Post(":id/pay")
  async pay(@Param("id") id: string): Promise<object> {
    return this.orders.pay(id);
  }

  @Post("close-books")
  async closeBooks(): Promise<string> {
    await this.locks.acquire("books", { wait: 0 });
    return "closed until the end of the program";
  }
}

@Module({ imports: [HoldfastModule.forRoot()], providers: [Orders], controllers: [OrdersController] })
class AppModule {}

const app = await NestFactory.create(AppModule, { logger: ["error"] });
await app.listen(0, "127.0.0.1");
const address = await app.getUrl();

async function post(path: string): Promise<string> {
  const response = await fetch(`${address}/orders/${path}`, { method: "POST" });
  return `${response.status} ${await response.text()}`;
}

const asked = once(bank, "asked");
const first = post("42/pay");
await asked;
console.log(`meanwhile: ${await post("42/pay")}`);
bank.emit("confirmed");
console.log(`first: ${await first}`);
console.log(`books: ${await post("close-books")}`);

await app.close();
