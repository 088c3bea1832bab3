// `holdfast run --hold-at-least` on Redis: the remaining time is stored in Redis itself.

import { expect, test } from "vitest";
import { cliSandbox } from "../../support/cli-sandbox.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";

const sandbox = cliSandbox();

withRedis((server) => {
  test("the remaining time stays held without the wrapper, also over several keys, and ends then", async () => {
    const env = { HOLDFAST_URL: server().url };
    const start = performance.now();
    const [short, long] = await Promise.all([
      sandbox.run(["run", "s1", "s2", "--hold-at-least", "4s", "--", "sh", "-c", "exit 5"], { env }),
      sandbox.run(["run", "l", "-s", "--ttl", "3m", "--hold-at-least", "2m", "--", "true"], { env }),
    ]);
    expect([short.code, long.code]).toEqual([5, 0]);
    const { out } = await sandbox.run(["ls", "--json"], { env });
    const views = out
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as { locks: { key: string }[]; remainingMs: number });
    const remainingMsOf = (key: string): number =>
      views.find(({ locks }) => locks.some((lock) => lock.key === key))?.remainingMs ?? 0;
    expect(remainingMsOf("l")).toBeGreaterThan(60_000);
    expect(remainingMsOf("l")).toBeLessThanOrEqual(120_000);
    expect(remainingMsOf("s2")).toBeLessThanOrEqual(4_000);
    expect((await sandbox.run(["run", "l", "-n", "--", "true"], { env })).code).toBe(124);
    const next = await sandbox.run(["run", "s2", "-w", "60", "--", "true"], { env });
    expect(next.code).toBe(0);
    expect(performance.now() - start).toBeGreaterThan(3_990);
  });
});
