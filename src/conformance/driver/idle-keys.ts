/** Keys without claims leave nothing in the store. */

import assert from "node:assert/strict";
import type { DefineTest } from "../context.ts";
import type { ConformanceSettings } from "../options.ts";

const BATCH = 250;

export function testIdleKeys(test: DefineTest, settings: ConformanceSettings): void {
  test(`${settings.keys} different keys leave nothing listed`, async (context) => {
    const client = await context.openClient();
    for (let done = 0; done < settings.keys; done += BATCH) {
      const count = Math.min(BATCH, settings.keys - done);
      const claims = Array.from({ length: count }, (_, index) => context.createClaim(`idle ${done + index}`));
      const answers = await Promise.all(claims.map((claim) => client.claim(claim)));
      assert.ok(answers.every(({ state }) => state === "held"));
      assert.ok((await client.release(...claims)).every(Boolean));
    }
    assert.deepEqual((await client.driver.list({ prefix: "" }, { max: 10 })).items, []);
  });
}
