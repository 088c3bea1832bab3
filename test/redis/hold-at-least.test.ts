// `holdfast run --hold-at-least` on Redis: what is left of the time stands in Redis itself.

import { expect, test } from "vitest";
import { place } from "../cli/command.ts";
import { withRedis } from "../support/redis-store.ts";

const here = place();

withRedis((server) => {
  test("what is left of the time stays held without the wrapper, also over several keys, and ends then", async () => {
    const env = { HOLDFAST_URL: server().url };
    const start = performance.now();
    const [short, long] = await Promise.all([
      here.run(["run", "s1", "s2", "--hold-at-least", "4s", "--", "sh", "-c", "exit 5"], { env }),
      here.run(["run", "l", "-s", "--ttl", "3m", "--hold-at-least", "2m", "--", "true"], { env }),
    ]);
    expect([short.code, long.code]).toEqual([5, 0]);
    const { out } = await here.run(["ls", "--json"], { env });
    const views = out
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as { keys: string[]; leftMs: number });
    const leftOf = (key: string): number => views.find(({ keys }) => keys.includes(key))?.leftMs ?? 0;
    expect(leftOf("l")).toBeGreaterThan(60_000);
    expect(leftOf("l")).toBeLessThanOrEqual(120_000);
    expect(leftOf("s2")).toBeLessThanOrEqual(4_000);
    expect((await here.run(["run", "l", "-n", "--", "true"], { env })).code).toBe(124);
    const next = await here.run(["run", "s2", "-w", "60", "--", "true"], { env });
    expect(next.code).toBe(0);
    expect(performance.now() - start).toBeGreaterThan(3_990);
  });
});
