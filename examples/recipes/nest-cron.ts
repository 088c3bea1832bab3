// A job of NestJS that runs once per tick, in however many processes this program runs.

import "reflect-metadata";
import { Injectable, Module } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { ScheduleModule } from "@nestjs/schedule";
import type { SkippedTick, TickRun } from "holdfast/cron";
import { HoldfastModule, LockedCron } from "holdfast/nestjs";

function onSkipped({ tick, reason }: SkippedTick): void {
  console.log(`skipped ${tick.toISOString()}: ${reason}`);
}

@Injectable()
class Reports {
  #running: Promise<void> | undefined;

  @LockedCron("* * * * * *", { name: "report", timeZone: "Etc/UTC", overlap: false, onSkipped })
  report({ tick }: TickRun): Promise<void> {
    this.#running = this.#send(tick);
    return this.#running;
  }

  async #send(tick: Date): Promise<void> {
    console.log(`report for ${tick.toISOString()}`);
  }

  // the module closes the locks afterwards, and the running job would lose its own
  async beforeApplicationShutdown(): Promise<void> {
    await this.#running?.catch(() => undefined);
  }
}

@Module({ imports: [ScheduleModule.forRoot(), HoldfastModule.forRoot()], providers: [Reports] })
class AppModule {}

const app = await NestFactory.createApplicationContext(AppModule, { logger: ["error"] });
app.enableShutdownHooks();
