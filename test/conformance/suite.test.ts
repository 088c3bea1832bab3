import assert from "node:assert/strict";
import { describe as nodeDescribe, test as nodeTest } from "node:test";
import { describe, test } from "vitest";
import { parseConformanceOptions } from "../../src/conformance/options.ts";
import type { ConformanceOptions, Runner } from "../../src/conformance/suite.ts";
import { conformance, oracle } from "../../src/conformance/suite.ts";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import type { Claim, Driver } from "../../src/spi/driver.ts";
import { randomId } from "../../src/util/ids.ts";
import { NO_EVENTS } from "../support/driver-events.ts";
import { recordSuite, runExpectingFailure } from "./suite-recorder.ts";

const MEMORY_OPTIONS: ConformanceOptions = {
  open: async () => {
    const store = memoryStore();
    return { driver: () => memory({ store }) };
  },
  traits: { recall: "push" },
  verbs: ["detach", "revoke"],
};

const LEFTOVER_CLAIM: Claim = {
  id: randomId(),
  locks: [{ key: "left", permits: 1, limit: 1 }],
  ttlMs: 60_000,
  tokenCount: 1,
  floor: 0n,
  wait: true,
  label: "",
};

/** Both fit the suite unchanged. */
const RUNNERS: readonly Runner[] = [
  { describe, test },
  { describe: nodeDescribe, test: nodeTest },
];

test("the supported runners are compatible", () => {
  for (const runner of RUNNERS) assert.equal(typeof runner.test, "function");
});

test("every test has a unique name, since a skip names it", () => {
  const names = recordSuite(MEMORY_OPTIONS).map(({ name }) => name);
  assert.deepEqual(names, [...new Set(names)]);
  assert.ok(names.length > 150);
});

test("a skipped test is shown with its reason and not run; an unknown one fails", async () => {
  const shown: string[] = [];
  const run: string[] = [];
  const bodies = new Map<string, () => Promise<void>>();
  const register = (name: string, body: () => Promise<void>): void => {
    run.push(name);
    bodies.set(name, body);
  };
  const runner: Runner = {
    describe: (_, body) => body(),
    test: Object.assign(register, { skip: (name: string) => shown.push(name) }),
  };
  const known = "a repeated release answers false";
  conformance(runner, "memory", { ...MEMORY_OPTIONS, skip: [{ test: known, reason: "it is slow" }] });
  assert.deepEqual(shown, [`${known} (it is slow)`]);
  assert.ok(!run.includes(known));
  await bodies.get("every test to be skipped exists")?.();

  conformance(runner, "memory", { ...MEMORY_OPTIONS, skip: [{ test: "no such test", reason: "none" }] });
  await assert.rejects(async () => bodies.get("every test to be skipped exists")?.(), /no such test/);
});

test("a driver that lacks a capability is tested without it, and must declare the lack", async () => {
  const lacking = recordSuite({
    ...MEMORY_OPTIONS,
    traits: { manyKeys: false, permits: "one", fencing: false, fifo: false },
    verbs: [],
  });
  const names = lacking.map(({ name }) => name);
  for (const pattern of [/semaphore of one/, /readers/, /a claim over several keys/, /revoked/]) {
    assert.deepEqual(
      names.filter((name) => pattern.test(name)),
      [],
    );
  }
  const traits = lacking.find(({ name }) => name === "the driver's traits are as declared");
  assert.ok(traits !== undefined);
  assert.match((await runExpectingFailure(traits)) ?? "", /manyKeys/);
});

test("a test that leaves claims behind fails", async () => {
  const leaving: ConformanceOptions = {
    ...MEMORY_OPTIONS,
    timeScale: 0.1,
    open: async () => {
      const store = memoryStore();
      const otherDriver = memory({ store });
      await otherDriver.open(NO_EVENTS);
      await otherDriver.claim(LEFTOVER_CLAIM);
      return { driver: () => memory({ store }) };
    },
  };
  const [unused] = recordSuite(leaving).filter(({ name }) => name === "a driver that was never used can be closed");
  assert.ok(unused !== undefined);
  assert.match((await runExpectingFailure(unused)) ?? "", /left claims behind/);
});

test("the oracle repeats a run from its seed", async () => {
  const run = async (seed: number): Promise<string[]> => {
    const driver = memory();
    await driver.open(NO_EVENTS);
    const calls: string[] = [];
    const recordingDriver: Driver = {
      ...driver,
      claim: (claim) => {
        calls.push(claim.locks.map(({ key, permits, limit }) => `${key} ${permits}/${limit}`).join());
        return driver.claim(claim);
      },
    };
    await oracle([recordingDriver], parseConformanceOptions(MEMORY_OPTIONS), { seed, steps: 80 });
    return calls;
  };
  assert.deepEqual(await run(5), await run(5));
  assert.notDeepEqual(await run(5), await run(6));
  assert.ok((await run(5)).length > 20);
});
