/** Grants follow the order of arrival. */

import assert from "node:assert/strict";
import type { Claim } from "../../spi/driver.ts";
import type { DefineTest, DriverClient, TestContext } from "../context.ts";
import type { ConformanceSettings } from "../options.ts";

interface QueuedClaim {
  readonly claim: Claim;
  readonly client: DriverClient;
}

export function testOrder(test: DefineTest, { traits }: ConformanceSettings): void {
  if (!traits.fifo) return;

  test("claims are granted in the order of their arrival, across clients", async (context) => {
    const queued = await queueClaims(context, 12);
    await assertServedInOrder(queued);
  });

  test("a repeated claim or renew keeps the entry", async (context) => {
    const queued = await queueClaims(context, 6);
    for (const { claim, client } of [...queued].reverse()) {
      if (claim === queued[0]?.claim) continue;
      assert.equal((await client.claim(claim)).state, "waiting");
      assert.equal((await client.renew(claim)).state, "waiting");
    }
    await assertServedInOrder(queued);
  });

  test("the order of the others stays when one leaves from the middle", async (context) => {
    const queued = await queueClaims(context, 6);
    const [gone] = queued.splice(3, 1) as [QueuedClaim];
    await gone.client.release(gone.claim);
    await assertServedInOrder(queued);
  });

  if (!traits.lease.claim) return;

  test("a queue is granted in order when its claims have different leases", async (context) => {
    const queued = await queueClaims(context, 6, (index) => 600_000 - index * 90_000);
    await assertServedInOrder(queued);
  });
}

/** The first claim holds, the others wait; two clients make them in turn. */
async function queueClaims(
  context: TestContext,
  length: number,
  ttlOf?: (index: number) => number,
): Promise<QueuedClaim[]> {
  const clients = [await context.openClient(), await context.openClient()] as const;
  const queued: QueuedClaim[] = [];
  for (let index = 0; index < length; index++) {
    const client = clients[(index % 2) as 0 | 1];
    const claim = context.createClaim("key", ttlOf && { ttlMs: ttlOf(index) });
    if (index === 0) await client.claimHeld(claim);
    else await client.claimWaiting(claim);
    queued.push({ claim, client });
  }
  return queued;
}

async function assertServedInOrder(queued: readonly QueuedClaim[]): Promise<void> {
  for (const [index, { claim, client }] of queued.entries()) {
    await client.waitForGrant(claim);
    const next = queued[index + 1];
    if (next !== undefined) assert.equal((await next.client.renew(next.claim)).state, "waiting");
    assert.deepEqual(await client.release(claim), [true]);
  }
}
