/** An error means that the outcome is unknown; a repeated call finds out. */

import assert from "node:assert/strict";
import type { Claim } from "../../spi/driver.ts";
import type { ChaosOptions } from "../../testing/chaos/driver.ts";
import { chaos } from "../../testing/chaos/driver.ts";
import type { DefineTest, DriverClient, TestContext } from "../context.ts";
import { assertHeld } from "../context.ts";
import type { ConformanceSettings } from "../options.ts";

const STORM_OPTIONS: ChaosOptions = { loseCall: 0.1, loseReply: 0.15, repeatCall: 0.5, delayCall: 0.3, maxDelayMs: 4 };

export function testLostReplies(test: DefineTest, { traits, random }: ConformanceSettings): void {
  test("a claim whose reply was lost is found by asking again, and is one claim", async (context) => {
    const client = await context.openClient();
    const chaosDriver = chaos(client.driver);
    for (const lose of ["loseNextReply", "loseNextCall"] as const) {
      const claim = context.createClaim("key");
      chaosDriver[lose]("claim");
      await assert.rejects(() => chaosDriver.claim(claim));
      const held = assertHeld(await chaosDriver.claim(claim), claim);
      assert.equal(assertHeld(await client.renew(claim), claim).token, held.token);
      assert.equal((await client.driver.list({ prefix: "" }, { max: 10 })).items.length, 1);
      assert.deepEqual(await chaosDriver.release([{ claim, hasUnansweredClaim: false }]), [true]);
      assert.ok(await client.isFree("key"));
    }
  });

  test("a waiting claim whose reply was lost keeps its entry", async (context) => {
    const client = await context.openClient();
    const chaosDriver = chaos(client.driver);
    const [holder, waiter, next] = [context.createClaim("key"), context.createClaim("key"), context.createClaim("key")];
    await client.claimHeld(holder);
    chaosDriver.loseNextReply("claim");
    await assert.rejects(() => chaosDriver.claim(waiter));
    await client.claimWaiting(next);
    assert.equal((await chaosDriver.claim(waiter)).state, "waiting");
    await client.release(holder);
    await context.waitUntil("the first grant", async () => {
      const [waiterAnswer, nextAnswer] = [await client.renew(waiter), await client.renew(next)];
      if (traits.fifo) assert.notEqual(nextAnswer.state, "held", "a later claim took its position");
      return waiterAnswer.state === "held" || nextAnswer.state === "held";
    });
    await client.release(waiter, next);
  });

  test("a release whose reply was lost has happened; repeated it finds nothing", async (context) => {
    const client = await context.openClient();
    const chaosDriver = chaos(client.driver);
    const claim = context.createClaim("key");
    await client.claimHeld(claim);
    chaosDriver.loseNextReply("release");
    await assert.rejects(() => chaosDriver.release([{ claim, hasUnansweredClaim: false }]));
    assert.ok(await client.isFree("key"));
    assert.deepEqual(await chaosDriver.release([{ claim, hasUnansweredClaim: false }]), [false]);
  });

  test("a renewal whose reply was lost changes no grant", async (context) => {
    const client = await context.openClient();
    const chaosDriver = chaos(client.driver);
    const claim = context.createClaim("key");
    const { token } = await client.claimHeld(claim);
    for (const lose of ["loseNextReply", "loseNextCall"] as const) {
      chaosDriver[lose]("renew");
      await assert.rejects(() => chaosDriver.renew([claim]));
      assert.equal(assertHeld(await client.renew(claim), claim).token, token);
    }
    await client.release(claim);
  });

  test("a claim without waiting whose reply was lost is found by asking again", async (context) => {
    const client = await context.openClient();
    const chaosDriver = chaos(client.driver);
    const claim = context.createClaim("key", { wait: false });
    chaosDriver.loseNextReply("claim");
    await assert.rejects(() => chaosDriver.claim(claim));
    assertHeld(await chaosDriver.claim(claim), claim);
    await client.release(claim);
  });

  for (let index = 0; index < random.seeds; index++) {
    const seed = random.from + index;
    test(`seed ${seed}: under lost, late and repeated calls no holders overlap and tokens rise`, (context) =>
      assertExclusionUnderFaults(context, seed, traits.fencing));
  }
}

async function assertExclusionUnderFaults(context: TestContext, seed: number, fencing: boolean): Promise<void> {
  let holders: Claim | null = null;
  let lastToken = 0n;
  const runClient = async (client: DriverClient, number: number): Promise<void> => {
    const chaosDriver = chaos(client.driver, {
      ...STORM_OPTIONS,
      seed: seed * 10 + number,
      inspect: () => context.inspect(),
    });
    // like the client: an error means unknown, so repeat the call
    const retryUntilAnswered = <T>(what: string, call: () => Promise<T>) =>
      context.waitUntil(what, () => call().then((value) => ({ value }), isUnknownOutcome));
    for (let round = 0; round < 3; round++) {
      const claim = context.createClaim("storm");
      let { value: answer } = await retryUntilAnswered("an answer to claim", () => chaosDriver.claim(claim));
      while (answer.state === "waiting") {
        await context.sleep(1);
        const { value } = await retryUntilAnswered("an answer to renew", () => chaosDriver.renew([claim]));
        assert.ok(value[0], "renew leaves out no answer");
        answer = value[0];
      }
      const { token } = assertHeld(answer, claim);
      assert.equal(holders, null, "two claims hold one key");
      if (fencing) assert.ok(token > lastToken, "tokens rise");
      holders = claim;
      lastToken = token;
      await context.sleep(1);
      holders = null;
      // its claim calls may be late and still arrive
      await retryUntilAnswered("an answer to release", () =>
        chaosDriver.release([{ claim, hasUnansweredClaim: true }]),
      );
    }
    await context.sleep(10); // late calls have arrived
    await chaosDriver.close();
  };
  const clients = [await context.openClient(), await context.openClient(), await context.openClient()];
  await Promise.all(clients.map(runClient));
}

function isUnknownOutcome(error: unknown): null {
  assert.match(String(error), /chaos/);
  return null;
}
