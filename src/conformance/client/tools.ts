/** What the client shows: lists, labels, prefixes; and what idle keys leave in it. */

import assert from "node:assert/strict";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Check, Subject } from "../subject.ts";
import { empty, pending, placed, player } from "./players.ts";

export function clientTools(check: Check, subject: Subject): void {
  check("a list shows who holds and who waits, with labels, within the client's prefix", async (scene) => {
    const [one, other] = [
      await player(scene, { prefix: "app:", label: "one" }),
      await player(scene, { prefix: "app:" }),
    ];
    const bare = await player(scene);
    const lock = await one.locks.acquire("job:1");
    const outside = await bare.locks.acquire("job:1");
    const waits = pending(other.locks.acquire("job:1", { label: "two" }));
    await placed(scene, 3);
    const shown = (await one.locks.list("job:")).map(({ holds, label, answer }) => [holds[0].key, label, answer.state]);
    assert.deepEqual(shown, [
      ["job:1", "one", "held"],
      ["job:1", "two", "waiting"],
    ]);
    assert.deepEqual(lock.keys, ["job:1"]);
    await outside.release();
    await lock.release();
    await (await waits).release();
    assert.deepEqual(await one.locks.list(), []);
  });

  check(`${subject.keys} different keys leave nothing in the store and nothing in the client`, async (scene) => {
    // to look at the store after each of so many calls would take far longer than they do
    const { locks } = await player(scene, {}, { inspect: async () => undefined });
    const go = async (count: number, name: string): Promise<void> => {
      for (let done = 0; done < count; done += 200) {
        await Promise.all(
          Array.from({ length: Math.min(200, count - done) }, async (_, index) => {
            const lock = await locks.acquire(`${name} ${done + index}`);
            await lock.release();
          }),
        );
      }
    };
    // the client may remember the tokens of 10,000 keys
    await go(Math.min(subject.keys, 20_000), "before");
    const before = heapUsed();
    await go(subject.keys, "after");
    const grown = heapUsed() - before;
    assert.ok(grown < 2_000_000 + subject.keys * 8, `the heap grew by ${grown} bytes over ${subject.keys} keys`);
    await empty(scene);
  });
}

/** After a full collection: only what is still reachable counts. */
function heapUsed(): number {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  collect();
  collect();
  return process.memoryUsage().heapUsed;
}
