import { expect, test } from "vitest";
import type { TestContext } from "../../src/conformance/context.ts";
import { runTest } from "../../src/conformance/context.ts";
import { parseConformanceOptions } from "../../src/conformance/options.ts";
import { detectSlowMachine } from "../../src/conformance/slow-machine.ts";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import { delegate } from "../../src/testing/delegate.ts";
import { makeClaim } from "../support/claims.ts";

const SETTINGS = parseConformanceOptions({
  open: async () => {
    const store = memoryStore();
    return { driver: () => memory({ store }) };
  },
});

/** Longer than any attempt regards as a busy machine. */
const STALL_MS = 200;

function stall(): void {
  const end = performance.now() + STALL_MS;
  while (performance.now() < end);
}

test("a test that fails while the machine stalls is repeated with longer leases and timeouts, at most twice", async () => {
  const scales: (readonly [ms: number, leaseMs: number])[] = [];
  const run = (failures: number): Promise<void> =>
    runTest(SETTINGS, async ({ scaleMs, scaleLease }: TestContext) => {
      scales.push([scaleMs(100), scaleLease(1_000)]);
      stall();
      if (scales.length <= failures) throw new Error(`attempt ${scales.length}`);
    });
  await run(1);
  expect(scales.splice(0)).toEqual([
    [100, 1_000],
    [200, 2_000],
  ]);
  await expect(run(3)).rejects.toThrow("attempt 3");
  expect(scales).toEqual([
    [100, 1_000],
    [200, 2_000],
    [400, 4_000],
  ]);
});

test("a driver whose calls are timed gets every argument of a renewal", async () => {
  const renewals: unknown[][] = [];
  const driver = delegate(memory({ store: memoryStore() }), {
    renew: async (...args) => {
      renewals.push(args);
      return [undefined];
    },
  });
  const slowMachine = detectSlowMachine();
  const claim = makeClaim("key");
  await slowMachine.timeCalls(driver).renew([claim], [7]);
  slowMachine.stop();
  expect(renewals).toEqual([[[claim], [7]]]);
});
