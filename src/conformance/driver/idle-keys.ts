/** Keys that nobody claims any more leave nothing behind. */

import assert from "node:assert/strict";
import type { Check, Subject } from "../subject.ts";

const AT_ONCE = 250;

export function idleKeys(check: Check, subject: Subject): void {
  check(`${subject.keys} different keys leave nothing listed`, async (scene) => {
    const client = await scene.client();
    for (let done = 0; done < subject.keys; done += AT_ONCE) {
      const count = Math.min(AT_ONCE, subject.keys - done);
      const claims = Array.from({ length: count }, (_, index) => scene.claim(`idle ${done + index}`));
      const answers = await Promise.all(claims.map((claim) => client.claim(claim)));
      assert.ok(answers.every(({ state }) => state === "held"));
      assert.ok((await client.release(...claims)).every(Boolean));
    }
    assert.deepEqual(await client.driver.list({ prefix: "" }, 10), []);
  });
}
