// A real application of NestJS. Prints what it has seen, then holds a lock until it is told to stop.

import "reflect-metadata";
import type { AddressInfo } from "node:net";
import { Body, Controller, Get, Inject, Injectable, Module, Param, Post, Scope, SetMetadata } from "@nestjs/common";
import { NestFactory, Reflector } from "@nestjs/core";
import type { Locks } from "holdfast";
import { currentLock } from "holdfast";
import type { TickRun } from "holdfast/cron";
import { createExpressMiddleware } from "holdfast/middleware";
import { HoldfastLocks, HoldfastModule, Locked, LockedCron } from "holdfast/nestjs";

const say = (what: string, seen: unknown): void => console.log(`${what}: ${JSON.stringify(seen)}`);

@Injectable()
class BaseService {
  @Locked("all", { name: "Base" })
  async nightly(): Promise<string> {
    return String(currentLock().keys);
  }
}

/** The locks come to a subclass, too, beside its own injected properties. */
@Injectable()
class OrdersService extends BaseService {
  @Inject(HoldfastLocks) readonly injected!: Locks;
  running = 0;
  most = 0;

  @Locked("order:#{orderId}", { wait: "10s" })
  async pay(orderId: string): Promise<string> {
    this.most = Math.max(this.most, ++this.running);
    await new Promise(setImmediate);
    this.running--;
    return `paid ${orderId}`;
  }

  @Locked(["account:#{from}", (_self: OrdersService, _from: string, to: string) => `account:${to}`])
  async transfer(from: string, to: string): Promise<string> {
    return `${from} ${to} ${currentLock().keys}`;
  }

  // @ts-expect-error the id is a number
  @Locked((_self: OrdersService, id: string) => id)
  async wrong(_id: number): Promise<void> {}
}

@Injectable({ scope: Scope.REQUEST })
class RequestService {
  @Locked("request")
  async run(): Promise<string> {
    return String(currentLock().keys);
  }
}

/** The application imports no ScheduleModule: the program passes the ticks. */
@Injectable()
class JobsService {
  @LockedCron("0 3 * * *", { name: "report", timeZone: "Europe/Berlin", overlap: false, unrefTimeout: true })
  async report({ tick, lock }: TickRun): Promise<string> {
    return `${this instanceof JobsService} ${tick.toISOString()} ${lock?.keys}`;
  }

  @LockedCron("0 4 * * *", { name: "nightly", utcOffset: 60 })
  async nightly(): Promise<void> {}

  // @ts-expect-error a job gets its tick
  @LockedCron("0 5 * * *", { name: "wrong" })
  async wrong(_id: number): Promise<void> {}
}

@Controller("orders")
class OrdersController {
  constructor(
    private readonly orders: OrdersService,
    private readonly requests: RequestService,
    private readonly locks: HoldfastLocks,
  ) {}

  @Locked("route:#{id}")
  @Post(":id")
  @SetMetadata("role", "clerk")
  async pay(@Param("id") id: string, @Body() body: { readonly amount: number }): Promise<string> {
    return `${await this.orders.pay(id)} ${body.amount} ${currentLock().keys} ${this.locks === this.orders.injected}`;
  }

  @Get("scoped")
  @Locked("scoped")
  async scoped(): Promise<string> {
    return this.requests.run();
  }
}

@Module({ providers: [OrdersService, RequestService, JobsService], controllers: [OrdersController] })
class OrdersModule {}

@Module({ providers: [{ provide: "PREFIX", useValue: "nest." }], exports: ["PREFIX"] })
class ConfigModule {}

@Module({
  imports: [
    HoldfastModule.forRootAsync({
      imports: [ConfigModule],
      inject: ["PREFIX"],
      useFactory: async (prefix: string) => ({ prefix, label: "nest" }),
    }),
    OrdersModule,
  ],
})
class AppModule {}

const app = await NestFactory.create(AppModule, { logger: ["error"] });
const locks = app.get<Locks>(HoldfastLocks);
app.use("/exclusive", createExpressMiddleware(locks, { key: "exclusive" }));
app.enableShutdownHooks();
await app.listen(0, "127.0.0.1");
const { port } = app.getHttpServer().address() as AddressInfo;

async function send(path: string, body?: object): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, {
    ...(body && { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
  });
  return `${response.status} ${await response.text()}`;
}

const orders = app.get(OrdersService);
const answers = await Promise.all(Array.from({ length: 20 }, (_, index) => send("/orders/7", { amount: index })));
say("answers", new Set(answers.map((answer) => answer.replace(/ \d+ route/, " N route"))).size);
say("one", await send("/orders/7", { amount: 5 }));
say("most at once", orders.most);
say("scoped", await send("/orders/scoped"));
say("subclass", await orders.nightly());
say("two keys", await orders.transfer("b", "a"));
say("metadata", new Reflector().get("role", OrdersController.prototype.pay));
say("middleware", (await send("/exclusive")).slice(0, 3));
const jobs = app.get(JobsService);
const run = { tick: new Date(Math.floor(Date.now() / 1_000) * 1_000), lock: null };
const reports = [await jobs.report(run), await jobs.report(run)];
say("job", [reports[0]?.replace(run.tick.toISOString(), "tick"), reports[1] ?? null]);
say("schedule", new Reflector().get("SCHEDULE_CRON_OPTIONS", JobsService.prototype.report));
await jobs.report(undefined as never).catch((error: Error) => say("no jobs", error.message));
await new JobsService().report(run).catch((error: Error) => say("job outside", error.message));
await new OrdersService().pay("1").catch((error: Error) => say("outside", error.message));

await locks.acquire("held by the application");
say("ready", true);
