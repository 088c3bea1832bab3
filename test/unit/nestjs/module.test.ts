import { expect, test } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import { memory } from "../../../src/drivers/memory.ts";
import { HoldfastModule, Locked, LockedCron } from "../../../src/nestjs/index.ts";

test("wrong options of the module are refused", () => {
  const locks = createLocks(memory());
  expect(() => HoldfastModule.forRoot("redis://host" as never)).toThrow("options of forRoot must be an object");
  expect(() => HoldfastModule.forRoot({ locks: "locks" as never })).toThrow(
    "locks must be what connect() or createLocks() returns",
  );
  expect(() => HoldfastModule.forRoot({ locks, url: "memory:" })).toThrow("url must not be set beside locks");
  expect(() => HoldfastModule.forRoot({ locks, wait: 0 })).toThrow("wait must not be set beside locks");
  expect(() => HoldfastModule.forRootAsync({} as never)).toThrow("useFactory must be a function");
  expect(() => HoldfastModule.forRootAsync({ useFactory: () => ({}), inject: {} as never })).toThrow(
    "inject must be an array",
  );
});

test("@Locked() without a key, on a static method, by the standard, or without reflect-metadata is refused", () => {
  const decorate = (target: unknown, second: unknown): unknown =>
    (Locked("k") as unknown as (...args: unknown[]) => unknown)(target, second, { value: async () => 1 });
  expect(() => Locked(undefined as never)).toThrow("key of @Locked() must be");
  expect(() => decorate(class {}, "run")).toThrow("must not be on a static method");
  expect(() => decorate(async () => 1, { kind: "method" })).toThrow("needs experimentalDecorators");
  expect(() => decorate(class {}.prototype, "run")).toThrow('import "reflect-metadata" first');
});

test("@LockedCron() refuses wrong options when the class is defined, and what @Locked() refuses", () => {
  const cron = LockedCron as (...args: unknown[]) => (...args: unknown[]) => unknown;
  expect(() => cron("* * * * *")).toThrow("options of LockedCron must be an object");
  expect(() => cron("* * * * *", { name: "" })).toThrow("name must not be empty");
  expect(() => cron("* * * * *", { name: "report", maxDelay: -1 })).toThrow("maxDelay must be");
  expect(() => cron("* * * * *", { name: "report", onSkipped: 3 })).toThrow("onSkipped must be a function");
  const decorate = cron("* * * * *", { name: "report", timeZone: "Etc/UTC" });
  expect(() => decorate(class {}, "run", { value: ran })).toThrow(
    "@LockedCron() of run must not be on a static method",
  );
  expect(() => decorate(ran, { kind: "method" })).toThrow("needs experimentalDecorators");
  expect(() => decorate(class {}.prototype, "run", { value: ran })).toThrow(
    "@LockedCron() needs the package reflect-metadata",
  );
});

async function ran(): Promise<void> {}
