import { spawn } from "node:child_process";
import type { AddressInfo } from "node:net";
import { connect, createServer } from "node:net";
import fc from "fast-check";
import { expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { watchHandles } from "../../support/open-handles.ts";
import { seededRandom } from "../../support/seeded-random.ts";

test("a seed repeats its numbers, and another seed gives others", () => {
  const draw = (seed: number): number[] => {
    const random = seededRandom(seed);
    return [random.next(), random.int(1000), random.pick([1, 2, 3]), random.fork().next()];
  };
  expect(draw(7)).toEqual(draw(7));
  expect(draw(7)).not.toEqual(draw(8));
});

test("integers stay below their bound, and all of them occur", () => {
  fc.assert(
    fc.property(fc.integer(), fc.integer({ min: 1, max: 10 }), (seed, limit) => {
      const random = seededRandom(seed);
      const values = new Set(Array.from({ length: 300 }, () => random.int(limit)));
      expect([...values].sort((a, b) => a - b)).toEqual(Array.from({ length: limit }, (_, index) => index));
    }),
  );
});

test("chance() is true about as often as its probability says", () => {
  const random = seededRandom(1);
  const hits = Array.from({ length: 10_000 }, () => random.chance(0.3)).filter(Boolean).length;
  expect(hits).toBeGreaterThan(2_800);
  expect(hits).toBeLessThan(3_200);
});

test("until() returns the value, or names the fact it waited for", async () => {
  let callCount = 0;
  const third = (): number | undefined => (++callCount === 3 ? 42 : undefined);
  expect(await until(third, { within: 1000, what: "the third time" })).toBe(42);
  await expect(until(() => false, { within: 10, what: "pigs to fly" })).rejects.toThrow(
    "10 ms in vain for pigs to fly",
  );
});

test("the handle watch finds a timer and a server, reports where they were created, and passes when they are closed", async () => {
  const watch = watchHandles();
  const timer = setTimeout(() => {}, 60_000);
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  await expect(watch.waitUntilClosed(20)).rejects.toThrow(/Timeout opened at .*helpers\.test\.ts.*TCPSERVERWRAP/);
  clearTimeout(timer);
  await expect(watch.waitUntilClosed(20)).rejects.toThrow(/^left open: TCPSERVERWRAP/);
  server.close();
  await watch.waitUntilClosed();
  watch.stop();
});

test("the handle watch waits for handles that close soon, and ignores those that are unref'd or existed before", async () => {
  const before = setTimeout(() => {}, 60_000);
  const watch = watchHandles();
  const background = setTimeout(() => {}, 60_000).unref();
  setTimeout(() => {}, 30);
  expect(watch.listOpen()).toHaveLength(1);
  await watch.waitUntilClosed();
  watch.stop();
  clearTimeout(before);
  clearTimeout(background);
});

test("the handle watch finds both ends of a connection and a child process", async () => {
  const watch = watchHandles();
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  await new Promise((resolve) => server.once("connection", resolve));
  expect(watch.listOpen().filter((it) => it.startsWith("TCPWRAP"))).toHaveLength(2);
  const child = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], { stdio: "ignore" });
  expect(watch.listOpen().some((it) => it.startsWith("PROCESSWRAP"))).toBe(true);
  child.kill("SIGKILL");
  socket.destroy();
  server.close();
  await watch.waitUntilClosed();
  watch.stop();
});
