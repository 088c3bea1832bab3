/** Closing a driver does not affect other clients. */

import assert from "node:assert/strict";
import type { DefineTest } from "../context.ts";

export function testClose(test: DefineTest): void {
  test("closing one client leaves the claims of others as they are", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [held, waiting, gone] = [context.createClaim("key"), context.createClaim("key"), context.createClaim("gone")];
    await clientB.claimHeld(held);
    await clientB.claimWaiting(waiting);
    await clientA.claimHeld(gone);
    await clientA.release(gone);
    await clientA.driver.close();
    assert.equal((await clientB.renew(held)).state, "held");
    assert.equal((await clientB.renew(waiting)).state, "waiting");
    await clientB.release(held);
    await clientB.waitForGrant(waiting);
    await clientB.release(waiting);
  });

  test("a closed driver says nothing more", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [held, waiting] = [context.createClaim("key"), context.createClaim("key")];
    await clientB.claimHeld(held);
    await clientA.claimWaiting(waiting);
    await clientA.release(waiting);
    await clientA.driver.close();
    const answers = clientA.pushes.length;
    await clientB.release(held);
    await context.sleep(20);
    assert.equal(clientA.pushes.length, answers);
  });

  test("a driver that was never used can be closed", async (context) => {
    const client = await context.openClient();
    await assert.doesNotReject(client.driver.close());
  });
}
