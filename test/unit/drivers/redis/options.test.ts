// Meaningless options are refused and named when the driver is made. Needs no server.

import { expect, test } from "vitest";
import type { RedisClient, RedisOptions } from "../../../../src/drivers/redis/driver.ts";
import { redis } from "../../../../src/drivers/redis/driver.ts";
import { systemClock } from "../../../../src/util/clock.ts";

const createDriver = (options: unknown): unknown => redis(() => ({}) as RedisClient, options as never);

test.each<readonly [keyof RedisOptions, readonly unknown[]]>([
  ["prefix", [null, 5, "", "a b", "a{b}", "k".repeat(65)]],
  ["connectTimeout", [null, 0, -1, 1.5, "5x", 2 ** 31]],
  ["commandTimeoutMs", [null, 0, -1, 1.5, "5s", 2 ** 31]],
  ["allowEviction", [null, 1, "yes"]],
  ["guardDataLoss", [null, 5, "yes", [], { maxTtlMs: 99 }, { maxTtlMs: "30s" }, { maxTtlMs: 86_400_001 }]],
  ["replicas", [null, 1, [], {}, { minAcks: 0 }, { minAcks: 101 }, { minAcks: 1, timeoutMs: 0 }]],
  ["warn", [null, "aloud"]],
  ["label", [null, 5]],
  ["clock", [null, Date]],
])("%s: invalid values are refused", (name, values) => {
  for (const value of values) {
    expect(() => createDriver({ [name]: value }), JSON.stringify(value)).toThrow(
      new RegExp(`^${name}(\\.\\w+)? must be `),
    );
    expect(() => createDriver({ [name]: value })).toThrow(TypeError);
  }
});

test("an unknown option is refused: a mistyped one must not mean the default", () => {
  expect(() => createDriver({ prefx: "a" })).toThrow(/^redis has no option "prefx"/);
  expect(() => createDriver({ guardDataLoss: { longestTtl: 5_000 } })).toThrow(
    /^guardDataLoss has no option "longestTtl"/,
  );
  expect(() => createDriver({ replicas: { minAcks: 1, within: 5 } })).toThrow(/^replicas has no option "within"/);
  for (const options of [null, 5, "a", []]) {
    expect(() => createDriver(options)).toThrow(/^options of redis must be an object/);
  }
});

test("every option is accepted together, and each at its bounds", () => {
  const allOptions: Required<RedisOptions> = {
    prefix: "k".repeat(64),
    connectTimeout: 1,
    commandTimeoutMs: 2 ** 31 - 1,
    allowEviction: true,
    guardDataLoss: { maxTtlMs: 86_400_000 },
    replicas: { minAcks: 100, timeoutMs: 60_000 },
    warn: () => undefined,
    silenceWarnings: ["version", "role", "failover", "clients", "memory", "disk", "appendonly", "guardDataLoss"],
    label: "",
    clock: systemClock,
  };
  expect((createDriver(allOptions) as { name: string }).name).toBe("redis");
  expect((createDriver({ guardDataLoss: {}, replicas: { minAcks: 1 } }) as { name: string }).name).toBe("redis");
});
