/** An error means that the outcome is unknown; asking again finds out. */

import assert from "node:assert/strict";
import type { Claim } from "../../spi/driver.ts";
import type { ChaosOptions } from "../chaos.ts";
import { chaos } from "../chaos.ts";
import type { Client, Scene } from "../scene.ts";
import { heldOf } from "../scene.ts";
import type { Check, Subject } from "../subject.ts";

const STORM: ChaosOptions = { loseCall: 0.1, loseReply: 0.15, repeatCall: 0.5, delayCall: 0.3, longestMs: 4 };

export function lostReplies(check: Check, { traits, random }: Subject): void {
  check("a claim whose reply was lost is found by asking again, and is one claim", async (scene) => {
    const client = await scene.client();
    const line = chaos(client.driver);
    for (const lose of ["loseNextReply", "loseNextCall"] as const) {
      const claim = scene.claim("key");
      line[lose]("claim");
      await assert.rejects(() => line.claim(claim));
      const held = heldOf(await line.claim(claim), claim);
      assert.equal(heldOf(await client.ask(claim), claim).token, held.token);
      assert.equal((await client.driver.list({ prefix: "" }, 10)).length, 1);
      assert.deepEqual(await line.release([claim]), [true]);
      assert.ok(await client.isFree("key"));
    }
  });

  check("a waiting claim whose reply was lost keeps its place", async (scene) => {
    const client = await scene.client();
    const line = chaos(client.driver);
    const [holder, waiter, next] = [scene.claim("key"), scene.claim("key"), scene.claim("key")];
    await client.hold(holder);
    line.loseNextReply("claim");
    await assert.rejects(() => line.claim(waiter));
    await client.queue(next);
    assert.equal((await line.claim(waiter)).state, "waiting");
    await client.release(holder);
    await scene.until("the first grant", async () => {
      const [one, other] = [await client.ask(waiter), await client.ask(next)];
      if (traits.fifo) assert.notEqual(other.state, "held", "its place was taken by who came later");
      return one.state === "held" || other.state === "held";
    });
    await client.release(waiter, next);
  });

  check("a release whose reply was lost has happened; repeated it finds nothing", async (scene) => {
    const client = await scene.client();
    const line = chaos(client.driver);
    const claim = scene.claim("key");
    await client.hold(claim);
    line.loseNextReply("release");
    await assert.rejects(() => line.release([claim]));
    assert.ok(await client.isFree("key"));
    assert.deepEqual(await line.release([claim]), [false]);
  });

  check("a renewal whose reply was lost changes no grant", async (scene) => {
    const client = await scene.client();
    const line = chaos(client.driver);
    const claim = scene.claim("key");
    const { token } = await client.hold(claim);
    for (const lose of ["loseNextReply", "loseNextCall"] as const) {
      line[lose]("renew");
      await assert.rejects(() => line.renew([claim]));
      assert.equal(heldOf(await client.ask(claim), claim).token, token);
    }
    await client.release(claim);
  });

  check("a claim without waiting whose reply was lost is found by asking again", async (scene) => {
    const client = await scene.client();
    const line = chaos(client.driver);
    const claim = scene.claim("key", { wait: false });
    line.loseNextReply("claim");
    await assert.rejects(() => line.claim(claim));
    heldOf(await line.claim(claim), claim);
    await client.release(claim);
  });

  for (let index = 0; index < random.seeds; index++) {
    const seed = random.from + index;
    check(`seed ${seed}: under lost, late and repeated calls nobody overlaps and tokens rise`, (scene) =>
      storm(scene, seed, traits.fencing),
    );
  }
}

async function storm(scene: Scene, seed: number, fencing: boolean): Promise<void> {
  let inside: Claim | null = null;
  let last = 0n;
  const play = async (client: Client, number: number): Promise<void> => {
    const line = chaos(client.driver, { ...STORM, seed: seed * 10 + number, inspect: () => scene.inspect() });
    // as the core does: an error means unknown, so ask again
    const surely = <T>(what: string, call: () => Promise<T>) =>
      scene.until(what, () => call().then((value) => ({ value }), unknown));
    for (let round = 0; round < 3; round++) {
      const claim = scene.claim("storm");
      let { value: answer } = await surely("an answer to claim", () => line.claim(claim));
      while (answer.state === "waiting") {
        await scene.pause(1);
        const { value } = await surely("an answer to renew", () => line.renew([claim]));
        assert.ok(value[0], "renew leaves out no answer");
        answer = value[0];
      }
      const { token } = heldOf(answer, claim);
      assert.equal(inside, null, "two hold one key");
      if (fencing) assert.ok(token > last, "tokens rise");
      inside = claim;
      last = token;
      await scene.pause(1);
      inside = null;
      // its claim calls may have been lost on the way and still arrive
      await surely("an answer to release", () => line.release([claim], new Set([claim.id])));
    }
    await scene.pause(10); // what was late has arrived
    await line.close();
  };
  const clients = [await scene.client(), await scene.client(), await scene.client()];
  await Promise.all(clients.map(play));
}

function unknown(error: unknown): null {
  assert.match(String(error), /chaos/);
  return null;
}
