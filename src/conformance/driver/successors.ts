/** A grant may name the claims of its client that wait directly behind it; a store that names none passes, too. */

import assert from "node:assert/strict";
import type { Claim } from "../../spi/driver.ts";
import type { DefineTest, DriverClient, HeldAnswer, TestContext } from "../context.ts";
import type { ConformanceSettings } from "../options.ts";

/** What the pushes of this client say that the claim's successors are. */
function successorsOf({ pushes }: DriverClient, { id }: Claim): readonly string[] {
  const answers = pushes.flatMap((push) => (push.id === id && push.answer !== undefined ? [push.answer] : []));
  return answers.flatMap((answer) => (answer.state === "held" ? (answer.successors ?? []) : []));
}

/** Two clients; the first holds the key, and these claims wait for it in this order. */
async function queueUp(
  context: TestContext,
  waiting: (first: DriverClient, second: DriverClient) => readonly (readonly [DriverClient, Claim])[],
): Promise<{ readonly grantFirst: () => Promise<HeldAnswer> }> {
  const [first, second] = [await context.openClient(), await context.openClient()];
  const holder = context.createClaim("key");
  await first.claimHeld(holder);
  const queue = waiting(first, second);
  for (const [client, claim] of queue) await client.claimWaiting(claim);
  const [client, claim] = queue[0] as readonly [DriverClient, Claim];
  return {
    async grantFirst() {
      await first.release(holder);
      return client.waitForGrant(claim);
    },
  };
}

export function testSuccessors(test: DefineTest, { traits }: ConformanceSettings): void {
  if (!traits.fifo) return; // what stands behind what is not defined
  test("a grant names at most the claims of its client directly behind it, with a token for each", async (context) => {
    const [one, two, other, three] = ["one", "two", "other", "three"].map((label) =>
      context.createClaim("key", { successors: true, label }),
    ) as [Claim, Claim, Claim, Claim];
    let clients: readonly [DriverClient, DriverClient] | undefined;
    const { grantFirst } = await queueUp(context, (first, second) => {
      clients = [first, second];
      return [
        [first, one],
        [first, two],
        [second, other],
        [first, three],
      ];
    });
    const [first, second] = clients as readonly [DriverClient, DriverClient];
    const { token, tokenCount } = await grantFirst();
    const successors = successorsOf(first, one);
    assert.ok(successors.length === 0 || successors.join() === two.id, `it names ${successors.join()}`);
    assert.ok(tokenCount > successors.length, "a token for each successor");
    // the second one is served by its own client, or by the store
    if (successors.length > 0) await first.release(two);
    await first.release(one);
    if (successors.length === 0) {
      await first.waitForGrant(two);
      await first.release(two);
    }
    const later = await second.waitForGrant(other);
    if (context.settings.traits.fencing)
      assert.ok(later.token >= token + BigInt(tokenCount), "tokens rise over the range");
    await second.release(other);
    await first.waitForGrant(three);
    await first.release(three);
  });

  test("a successor that is not served is granted by the store", async (context) => {
    const [one, two] = [0, 1].map(() => context.createClaim("key", { successors: true })) as [Claim, Claim];
    let client: DriverClient | undefined;
    const { grantFirst } = await queueUp(context, (first) => {
      client = first;
      return [
        [first, one],
        [first, two],
      ];
    });
    const { token, tokenCount } = await grantFirst();
    const first = client as DriverClient;
    await first.release(one);
    const later = await first.waitForGrant(two);
    if (context.settings.traits.fencing)
      assert.ok(later.token >= token + BigInt(tokenCount), "tokens rise over the range");
    await first.release(two);
  });

  test("a claim with another ttl, or one that did not ask, is no successor", async (context) => {
    const ttl = traits.lease.claim ? { ttlMs: context.scaleLease(20_000) } : {};
    for (const change of [{ successors: false }, ...(traits.lease.claim ? [{ successors: true, ...ttl }] : [])]) {
      const [one, two] = [context.createClaim("key", { successors: true }), context.createClaim("key", change)];
      let client: DriverClient | undefined;
      const { grantFirst } = await queueUp(context, (first) => {
        client = first;
        return [
          [first, one],
          [first, two],
        ];
      });
      await grantFirst();
      const first = client as DriverClient;
      assert.deepEqual(successorsOf(first, one), []);
      await first.release(one);
      await first.waitForGrant(two);
      await first.release(two);
    }
  });
}
