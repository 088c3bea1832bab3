/** As cron-worker.ts, with @LockedCron() of NestJS. */

import "./cron-clock.js";
import "reflect-metadata";
import { appendFileSync } from "node:fs";
import { Injectable, Module } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { ScheduleModule } from "@nestjs/schedule";
import type { TickRun } from "holdfast/cron";
import { HoldfastModule, LockedCron } from "holdfast/nestjs";

const [, , , file = ""] = process.argv;

function came(tick: Date): void {
  console.log(`came ${tick.toISOString()}`);
}

@Injectable()
class Reports {
  readonly file = file;

  @LockedCron("* * * * * *", { name: "report", timeZone: "Europe/Berlin", onSkipped: ({ tick }) => came(tick) })
  report({ tick }: TickRun): void {
    appendFileSync(this.file, `${tick.toISOString()}\n`);
    came(tick);
  }
}

@Module({ imports: [ScheduleModule.forRoot(), HoldfastModule.forRoot()], providers: [Reports] })
class AppModule {}

await NestFactory.createApplicationContext(AppModule, { logger: ["error"] });
console.log("ready");
