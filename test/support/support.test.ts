import { createServer } from "node:net";
import fc from "fast-check";
import { expect, test } from "vitest";
import { nothingLeft, openResources } from "./leak-check.ts";
import { seededRandom } from "./seeded-random.ts";
import { until } from "./wait-for.ts";

test("a seed repeats its numbers, and another seed has others", () => {
  const draw = (seed: number): number[] => {
    const random = seededRandom(seed);
    return [random.next(), random.int(1000), random.pick([1, 2, 3]), random.fork().next()];
  };
  expect(draw(7)).toEqual(draw(7));
  expect(draw(7)).not.toEqual(draw(8));
});

test("whole numbers stay below their bound and all of them come", () => {
  fc.assert(
    fc.property(fc.integer(), fc.integer({ min: 1, max: 10 }), (seed, below) => {
      const random = seededRandom(seed);
      const seen = new Set(Array.from({ length: 300 }, () => random.int(below)));
      expect([...seen].sort((a, b) => a - b)).toEqual(Array.from({ length: below }, (_, at) => at));
    }),
  );
});

test("chance is about as likely as it says", () => {
  const random = seededRandom(1);
  const hits = Array.from({ length: 10_000 }, () => random.chance(0.3)).filter(Boolean).length;
  expect(hits).toBeGreaterThan(2_800);
  expect(hits).toBeLessThan(3_200);
});

test("until gives the value back, or says what it waited for", async () => {
  let asked = 0;
  const third = (): number | undefined => (++asked === 3 ? 42 : undefined);
  expect(await until(third, { within: 1000, what: "the third time" })).toBe(42);
  await expect(until(() => false, { within: 10, what: "pigs to fly" })).rejects.toThrow(
    "10 ms in vain for pigs to fly",
  );
});

test("the leak check sees a timer and a server, and is content when they are gone", async () => {
  const before = openResources();
  const timer = setTimeout(() => {}, 60_000);
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  await expect(nothingLeft(before, 20)).rejects.toThrow(/Timeout/);
  clearTimeout(timer);
  await expect(nothingLeft(before, 20)).rejects.toThrow(/TCPServerWrap|TCPSocketWrap/);
  server.close();
  await nothingLeft(before);
});

test("the leak check waits for a handle that closes soon", async () => {
  const before = openResources();
  setTimeout(() => {}, 30);
  await nothingLeft(before);
});
