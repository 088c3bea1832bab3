import assert from "node:assert/strict";
import { test } from "vitest";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import type { Answer, Claim, ClaimId, Driver } from "../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../src/spi/driver.ts";
import type { ChaosDriver, ChaosOptions } from "../../src/testing/chaos/driver.ts";
import { chaos } from "../../src/testing/chaos/driver.ts";
import { until } from "../../src/testing/until.ts";
import { randomId } from "../../src/util/ids.ts";
import { NO_EVENTS, toDriverEvents } from "../support/driver-events.ts";
import { checkLeaksAfterEach } from "../support/leak-check.ts";
import { toReleases } from "../support/releases.ts";

checkLeaksAfterEach();

type Push = readonly [id: ClaimId | null, answer: Answer | undefined];

function makeClaim(key = "key", overrides: Partial<Claim> = {}): Claim {
  return {
    id: randomId(),
    locks: [{ key, permits: ALL_PERMITS, limit: ALL_PERMITS }],
    ttlMs: 60_000,
    tokenCount: 1,
    floor: 0n,
    wait: true,
    label: "",
    ...overrides,
  };
}

async function chaosDriver(options?: ChaosOptions): Promise<{ line: ChaosDriver; direct: Driver; pushes: Push[] }> {
  const store = memoryStore();
  const line = chaos(memory({ store }), options);
  const direct = memory({ store });
  const pushes: Push[] = [];
  await line.open(toDriverEvents((id, answer) => pushes.push([id, answer])));
  await direct.open(NO_EVENTS);
  return { line, direct, pushes };
}

test("without planned faults the chaos driver passes all calls through", async () => {
  const { line, pushes } = await chaosDriver();
  const [claim, other] = [makeClaim(), makeClaim()];
  assert.equal((await line.claim(claim)).state, "held");
  assert.equal((await line.claim(other)).state, "waiting");
  assert.deepEqual(await line.release(toReleases(claim)), [true]);
  await until(() => pushes.length === 1, { within: 1000, what: "the push" });
  assert.deepEqual(pushes[0]?.[0], other.id);
  assert.equal((await line.list({ prefix: "" }, { max: 10 })).items.length, 1);
  assert.deepEqual([line.countCalls("claim"), line.countCalls("release"), line.countCalls("list")], [2, 1, 1]);
  await line.close();
});

test("a lost call does not reach the store, a lost reply does", async () => {
  const { line, direct } = await chaosDriver();
  const claim = makeClaim();
  line.loseNextCall("claim", 2);
  await assert.rejects(line.claim(claim), /call of claim was lost/);
  await assert.rejects(line.claim(claim), /call of claim was lost/);
  assert.equal((await direct.list({ prefix: "" }, { max: 10 })).items.length, 0);
  line.loseNextReply("claim");
  await assert.rejects(line.claim(claim), /reply of claim was lost/);
  assert.equal((await direct.list({ prefix: "" }, { max: 10 })).items.length, 1);
  assert.equal((await line.claim(claim)).state, "held");
  await line.close();
});

test("a cut fails calls in flight and later ones, drops pushes, and is followed by notify(null)", async () => {
  const { line, direct, pushes } = await chaosDriver();
  const [holder, waiter] = [makeClaim(), makeClaim()];
  await direct.claim(holder);
  await line.claim(waiter);
  const call = line.pauseNext("renew");
  const underWay = line.renew([waiter]);
  await call.reached;
  line.disconnect();
  await assert.rejects(underWay, /connection was lost/);
  await assert.rejects(line.list({ prefix: "" }, { max: 1 }), /not connected/);
  await direct.release(toReleases(holder));
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(pushes, []);
  line.reconnect();
  assert.deepEqual(pushes, [[null, undefined]]);
  call.resume();
  assert.equal((await line.renew([waiter]))[0]?.state, "held");
  await line.close();
});

test("a push delayed when the connection breaks is never delivered", async () => {
  const { line, direct, pushes } = await chaosDriver({ delayPush: 1, maxDelayMs: 30 });
  const [holder, waiter] = [makeClaim(), makeClaim()];
  await direct.claim(holder);
  await line.claim(waiter);
  await direct.release(toReleases(holder));
  await new Promise((resolve) => setImmediate(resolve));
  line.disconnect();
  line.reconnect();
  await new Promise((resolve) => setTimeout(resolve, 40));
  assert.deepEqual(pushes, [[null, undefined]]);
  await line.close();
});

test("a repeated release answers as its first call, a repeated claim as its last", async () => {
  const { line, direct } = await chaosDriver({ repeatCall: 1 });
  const claim = makeClaim();
  assert.equal((await line.claim(claim)).state, "held");
  assert.deepEqual(await line.release(toReleases(claim)), [true]);
  assert.deepEqual(await line.release(toReleases(claim)), [false]);
  const [holder, tried] = [makeClaim(), makeClaim("key", { wait: false })];
  await direct.claim(holder);
  assert.equal((await line.claim(tried)).state, "none");
  assert.equal((await direct.list({ prefix: "" }, { max: 10 })).items.length, 1);
  await line.close();
});

test("a withheld answer belongs to a call that has reached the store", async () => {
  const { line, direct } = await chaosDriver();
  const call = line.pauseNext("claim", "after");
  const claim = line.claim(makeClaim());
  await call.reached;
  assert.equal((await direct.list({ prefix: "" }, { max: 10 })).items.length, 1);
  call.resume();
  assert.equal((await claim).state, "held");
  await line.close();
});

test("the same seed disturbs the same calls", async () => {
  const run = async (seed: number): Promise<string> => {
    const { line } = await chaosDriver({ seed, loseCall: 0.3, loseReply: 0.3 });
    let outcomes = "";
    for (let call = 0; call < 40; call++) {
      const answer = await line.list({ prefix: "" }, { max: 1 }).catch((error: Error) => error.message);
      outcomes += typeof answer === "string" ? answer.charAt(9) : ".";
    }
    await line.close();
    return outcomes;
  };
  assert.equal(await run(1), await run(1));
  assert.notEqual(await run(1), await run(2));
});
