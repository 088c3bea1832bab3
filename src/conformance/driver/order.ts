/** Who is granted first: by arrival. */

import assert from "node:assert/strict";
import type { Claim } from "../../spi/driver.ts";
import type { Client, Scene } from "../scene.ts";
import type { Check, Subject } from "../subject.ts";

interface Placed {
  readonly claim: Claim;
  readonly client: Client;
}

export function order(check: Check, { traits }: Subject): void {
  if (!traits.fifo) return;

  check("claims are granted in the order of their arrival, across clients", async (scene) => {
    const line = await lineUp(scene, 12);
    await servedInOrder(line);
  });

  check("asking again by claim or by renew keeps the place", async (scene) => {
    const line = await lineUp(scene, 6);
    for (const { claim, client } of [...line].reverse()) {
      if (claim === line[0]?.claim) continue;
      assert.equal((await client.claim(claim)).state, "waiting");
      assert.equal((await client.ask(claim)).state, "waiting");
    }
    await servedInOrder(line);
  });

  check("the order of the others stays when one leaves from the middle", async (scene) => {
    const line = await lineUp(scene, 6);
    const [gone] = line.splice(3, 1) as [Placed];
    await gone.client.release(gone.claim);
    await servedInOrder(line);
  });

  if (!traits.lease.claim) return;

  check("a line is served in order when its claims have different leases", async (scene) => {
    const line = await lineUp(scene, 6, (index) => 600_000 - index * 90_000);
    await servedInOrder(line);
  });
}

/** The first holds, the others wait behind it, placed one after another by two clients in turn. */
async function lineUp(scene: Scene, length: number, ttlOf?: (index: number) => number): Promise<Placed[]> {
  const clients = [await scene.client(), await scene.client()] as const;
  const line: Placed[] = [];
  for (let index = 0; index < length; index++) {
    const client = clients[(index % 2) as 0 | 1];
    const claim = scene.claim("key", ttlOf && { ttlMs: ttlOf(index) });
    if (index === 0) await client.hold(claim);
    else await client.queue(claim);
    line.push({ claim, client });
  }
  return line;
}

async function servedInOrder(line: readonly Placed[]): Promise<void> {
  for (const [index, { claim, client }] of line.entries()) {
    await client.granted(claim);
    const next = line[index + 1];
    if (next !== undefined) assert.equal((await next.client.ask(next.claim)).state, "waiting");
    assert.deepEqual(await client.release(claim), [true]);
  }
}
