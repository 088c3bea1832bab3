/** Closing a driver disturbs nobody else. */

import assert from "node:assert/strict";
import type { Check } from "../subject.ts";

export function closing(check: Check): void {
  check("closing one client leaves the claims of others as they are", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const [held, waiting, gone] = [scene.claim("key"), scene.claim("key"), scene.claim("gone")];
    await other.hold(held);
    await other.queue(waiting);
    await one.hold(gone);
    await one.release(gone);
    await one.driver.close();
    assert.equal((await other.ask(held)).state, "held");
    assert.equal((await other.ask(waiting)).state, "waiting");
    await other.release(held);
    await other.granted(waiting);
    await other.release(waiting);
  });

  check("a closed driver says nothing more", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const [held, waiting] = [scene.claim("key"), scene.claim("key")];
    await other.hold(held);
    await one.queue(waiting);
    await one.release(waiting);
    await one.driver.close();
    const said = one.pushes.length;
    await other.release(held);
    await scene.pause(20);
    assert.equal(one.pushes.length, said);
  });

  check("a driver that was never used can be closed", async (scene) => {
    const client = await scene.client();
    await client.driver.close();
  });
}
