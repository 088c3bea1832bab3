// Nest: app.close() ends the running requests, and then closes the locks of the module.

import "reflect-metadata";
import { setTimeout as delay } from "node:timers/promises";
import { Controller, Module, Param, Post } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { currentLock } from "holdfast";
import { HoldfastModule, Locked } from "holdfast/nestjs";

@Controller("orders")
class Orders {
  @Post(":id/pay")
  @Locked("order:#{id}", { wait: "2s", maxHold: "1m" })
  async pay(@Param("id") id: string): Promise<{ readonly paid: string }> {
    console.log("paying");
    await delay(300, undefined, { signal: currentLock().signal });
    return { paid: id };
  }
}

@Module({ imports: [HoldfastModule.forRoot({ wait: "2s" })], controllers: [Orders] })
class App {}

const app = await NestFactory.create(App, { logger: ["error", "warn"] });
app.enableShutdownHooks(["SIGTERM"]); // else NestJS does not hear of it
await app.listen(Number(process.env.PORT ?? 0), "127.0.0.1");
console.log(JSON.stringify(app.getHttpServer().address()));
