import assert from "node:assert/strict";
import { describe as nodeDescribe, test as nodeTest } from "node:test";
import { describe, test } from "vitest";
import { subjectOf } from "../../src/conformance/subject.ts";
import type { ConformanceOptions, Runner } from "../../src/conformance/suite.ts";
import { conformance, oracle } from "../../src/conformance/suite.ts";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import { newId } from "../../src/ids.ts";
import type { Claim, Driver } from "../../src/spi/driver.ts";
import { failureOf, recordedSuite } from "./recorded-suite.ts";

const MEMORY: ConformanceOptions = {
  open: async () => {
    const store = memoryStore();
    return { driver: () => memory({ store }) };
  },
  verbs: ["detach", "revoke"],
};

const LEFT: Claim = {
  id: newId(),
  holds: [{ key: "left", permits: 1, limit: 1 }],
  ttlMs: 60_000,
  tokens: 1,
  floor: 0n,
  wait: true,
  label: "",
};

/** Both fit the suite as they are. */
const RUNNERS: readonly Runner[] = [
  { describe, test },
  { describe: nodeDescribe, test: nodeTest },
];

test("the runners in use fit", () => {
  for (const runner of RUNNERS) assert.equal(typeof runner.test, "function");
});

test("every test has a name of its own, since a skip names it", () => {
  const names = recordedSuite(MEMORY).map(({ name }) => name);
  assert.deepEqual(names, [...new Set(names)]);
  assert.ok(names.length > 150);
});

test("a skipped test is shown with its reason and not run; one that does not exist fails", async () => {
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
  conformance(runner, "memory", { ...MEMORY, skip: [{ test: known, reason: "it is slow" }] });
  assert.deepEqual(shown, [`${known} (it is slow)`]);
  assert.ok(!run.includes(known));
  await bodies.get("every test to be skipped exists")?.();

  conformance(runner, "memory", { ...MEMORY, skip: [{ test: "no such test", reason: "none" }] });
  await assert.rejects(async () => bodies.get("every test to be skipped exists")?.(), /no such test/);
});

test("a driver that lacks something is tested without it, and must say so itself", async () => {
  const lacking = recordedSuite({
    ...MEMORY,
    traits: { manyKeys: false, permits: "one", fencing: false, fifo: false },
    verbs: [],
  });
  const names = lacking.map(({ name }) => name);
  for (const word of [/semaphore of one/, /readers/, /a claim over several keys/, /revoked/]) {
    assert.deepEqual(
      names.filter((name) => word.test(name)),
      [],
    );
  }
  const traits = lacking.find(({ name }) => name === "the driver's traits are as declared");
  assert.ok(traits !== undefined);
  assert.match((await failureOf(traits)) ?? "", /manyKeys/);
});

test("what a test leaves behind makes it fail", async () => {
  const leaving: ConformanceOptions = {
    ...MEMORY,
    timeScale: 0.1,
    open: async () => {
      const store = memoryStore();
      const other = memory({ store });
      await other.open(() => undefined);
      await other.claim(LEFT);
      return { driver: () => memory({ store }) };
    },
  };
  const [unused] = recordedSuite(leaving).filter(({ name }) => name === "a driver that was never used can be closed");
  assert.ok(unused !== undefined);
  assert.match((await failureOf(unused)) ?? "", /left claims behind/);
});

test("the oracle does the same again by the same seed", async () => {
  const run = async (seed: number): Promise<string[]> => {
    const driver = memory();
    await driver.open(() => undefined);
    const done: string[] = [];
    const noting: Driver = {
      ...driver,
      claim: (claim) => {
        done.push(claim.holds.map(({ key, permits, limit }) => `${key} ${permits}/${limit}`).join());
        return driver.claim(claim);
      },
    };
    await oracle([noting], subjectOf(MEMORY), { seed, steps: 80 });
    return done;
  };
  assert.deepEqual(await run(5), await run(5));
  assert.notDeepEqual(await run(5), await run(6));
  assert.ok((await run(5)).length > 20);
});
