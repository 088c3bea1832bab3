import { setTimeout as delay } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import type { ClientLogger } from "../../../src/client/logger.ts";
import { createTestLocks } from "../../../src/testing/index.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";

checkLeaksAfterEach();

interface LogLine {
  readonly level: string;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly message: string;
}

function recordingLogger(): { readonly logger: ClientLogger; readonly lines: LogLine[] } {
  const lines: LogLine[] = [];
  const method =
    (level: string) =>
    (fields: Readonly<Record<string, unknown>>, message: string): void =>
      void lines.push({ level, fields, message });
  return {
    logger: { debug: method("debug"), info: method("info"), warn: method("warn"), error: method("error") },
    lines,
  };
}

test("the logger receives each event with a level, a message and fields that JSON can have", async () => {
  const { logger, lines } = recordingLogger();
  const locks = createTestLocks({ logger, ttl: "30s" });
  const lock = await locks.acquire("order:7");
  expect(await locks.tryAcquire("order:7")).toBeNull();
  const timedOut = locks.acquire("order:7", { wait: "1s" }).catch(() => undefined);
  await locks.advance("1s");
  await timedOut;
  const controller = new AbortController();
  const cancelled = locks.acquire("order:7", { signal: controller.signal }).catch(() => undefined);
  controller.abort();
  await cancelled;
  locks.storeDown();
  await locks.advance("10s");
  locks.storeUp();
  await locks.advance("10s");
  locks.lose("order:7", "revoked");
  await lock.release();
  await locks.close();
  const expected = [
    ["debug", "acquired", 'acquired "order:7"'],
    ["debug", "failed", '"order:7" was busy'],
    ["warn", "failed", 'the wait for "order:7" has ended without the lock'],
    ["debug", "failed", 'the request for "order:7" was cancelled'],
    ["error", "storeDown", "the store cannot be reached"],
    ["warn", "jeopardy", 'the lease of "order:7" is in doubt: a renewal failed or is late'],
    ["info", "storeUp", "the store answers again"],
    ["info", "restored", 'the lease of "order:7" is confirmed again'],
    ["error", "lost", 'lost "order:7": revoked'],
  ];
  const found = lines.map(({ level, fields, message }) => [level, fields.event, message]);
  expect(found.filter(([, event]) => event !== "renewed" && event !== "waiting")).toEqual(expected);
  expect(lines.find(({ fields }) => fields.event === "lost")?.fields).toMatchObject({
    store: "memory",
    keys: ["order:7"],
    reason: "revoked",
    token: expect.stringMatching(/^\d+$/),
  });
  expect(() => JSON.stringify(lines)).not.toThrow();
});

test("a logger that throws breaks no lock, and its error is a process warning", async () => {
  const warned = vi.fn();
  process.on("warning", warned);
  const fail = (): never => {
    throw new Error("the log is full");
  };
  const locks = createTestLocks({ logger: { debug: fail, info: fail, warn: fail, error: fail } });
  const lock = await locks.acquire("k");
  expect(await lock.release()).toBe(true);
  await locks.close();
  await delay(0);
  process.off("warning", warned);
  expect(warned).toHaveBeenCalledWith(expect.objectContaining({ message: "the log is full" }));
});

test("a logger that lacks a method is refused by its name", () => {
  const { debug, info, warn } = console;
  expect(() => createTestLocks({ logger: { debug, info, warn } as ClientLogger })).toThrow(
    "logger must be an object with the methods debug, info, warn and error",
  );
});
