/** Random commands get the lock table's answers. */

import type { DefineTest } from "../context.ts";
import type { ConformanceSettings } from "../options.ts";
import { oracle } from "../oracle.ts";

export function testModel(test: DefineTest, settings: ConformanceSettings): void {
  const { traits, random } = settings;
  if (!traits.fifo) return;

  for (let index = 0; index < random.seeds; index++) {
    const seed = random.from + index;
    test(`seed ${seed}: random commands are answered as the lock table answers them`, async (context) => {
      const [clientA, clientB] = [await context.openClient(), await context.openClient()];
      const inspect = context.store.inspect?.bind(context.store);
      await oracle([clientA.driver, clientB.driver], settings, {
        seed,
        steps: random.steps,
        inspect,
      });
    });
  }
}
