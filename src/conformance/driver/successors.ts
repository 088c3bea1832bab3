/** A grant may name the claims of its client that wait directly behind it; a store that names none passes, too. */

import assert from "node:assert/strict";
import type { Claim } from "../../spi/driver.ts";
import type { ClaimOptions, DefineTest, DriverClient, HeldAnswer, TestContext } from "../context.ts";
import type { ConformanceSettings } from "../options.ts";

/** The client of a claim, and the claim. */
type Waiting = readonly [client: 0 | 1, claim: Claim];

/** What the pushes of this client say that the claim's successors are. */
function successorsOf({ pushes }: DriverClient, { id }: Claim): readonly string[] {
  const answers = pushes.flatMap((push) => (push.id === id && push.answer !== undefined ? [push.answer] : []));
  return answers.flatMap((answer) => (answer.state === "held" ? (answer.successors ?? []) : []));
}

interface Queue {
  /** The clients 0 and 1. */
  readonly clients: readonly [DriverClient, DriverClient];
  /** The grant of the first claim. */
  readonly granted: HeldAnswer;
}

/** Lets these claims of two clients wait for the key in this order, and releases it, so that the first one is granted. */
async function grantFirst(context: TestContext, waiting: readonly [Waiting, ...Waiting[]]): Promise<Queue> {
  const clients = [await context.openClient(), await context.openClient()] as const;
  const holder = context.createClaim("key");
  await clients[0].claimHeld(holder);
  for (const [client, claim] of waiting) await clients[client].claimWaiting(claim);
  await clients[0].release(holder);
  const [[client, claim]] = waiting;
  return { clients, granted: await clients[client].waitForGrant(claim) };
}

export function testSuccessors(test: DefineTest, { traits }: ConformanceSettings): void {
  if (!traits.fifo) return; // what stands behind what is not defined
  const expectAbove = ({ token }: HeldAnswer, range: HeldAnswer): void => {
    if (traits.fencing) assert.ok(token >= range.token + BigInt(range.tokenCount), "tokens rise over the range");
  };

  test("a grant names at most the claims of its client directly behind it, with a token for each", async (context) => {
    const [one, two, other, three] = ["one", "two", "other", "three"].map((label) =>
      context.createClaim("key", { successors: true, label }),
    ) as [Claim, Claim, Claim, Claim];
    const { clients, granted } = await grantFirst(context, [
      [0, one],
      [0, two],
      [1, other],
      [0, three],
    ]);
    const [first, second] = clients;
    const successors = successorsOf(first, one);
    assert.ok(successors.length === 0 || successors.join() === two.id, `it names ${successors.join()}`);
    assert.ok(granted.tokenCount > successors.length, "a token for each successor");
    // the second one is served by its own client, or by the store
    if (successors.length > 0) await first.release(two);
    await first.release(one);
    if (successors.length === 0) {
      await first.waitForGrant(two);
      await first.release(two);
    }
    expectAbove(await second.waitForGrant(other), granted);
    await second.release(other);
    await first.waitForGrant(three);
    await first.release(three);
  });

  test("a successor that is not served is granted by the store", async (context) => {
    const [one, two] = [0, 1].map(() => context.createClaim("key", { successors: true })) as [Claim, Claim];
    const { clients, granted } = await grantFirst(context, [
      [0, one],
      [0, two],
    ]);
    await clients[0].release(one);
    expectAbove(await clients[0].waitForGrant(two), granted);
    await clients[0].release(two);
  });

  test("a claim with another ttl, or one that did not ask, is no successor", async (context) => {
    const changes: ClaimOptions[] = [{ successors: false }];
    if (traits.lease.claim) changes.push({ successors: true, ttlMs: context.scaleLease(20_000) });
    for (const change of changes) {
      const [one, two] = [context.createClaim("key", { successors: true }), context.createClaim("key", change)];
      const { clients } = await grantFirst(context, [
        [0, one],
        [0, two],
      ]);
      assert.deepEqual(successorsOf(clients[0], one), []);
      await clients[0].release(one);
      await clients[0].waitForGrant(two);
      await clients[0].release(two);
    }
  });
}
