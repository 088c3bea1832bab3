/** Random commands are answered as core/table answers them. */

import { oracle } from "../oracle.ts";
import type { Check, Subject } from "../subject.ts";

export function againstTable(check: Check, subject: Subject): void {
  const { traits, random } = subject;
  if (!traits.fifo) return;

  for (let index = 0; index < random.seeds; index++) {
    const seed = random.from + index;
    check(`seed ${seed}: random commands are answered as the lock table answers them`, async (scene) => {
      const [one, other] = [await scene.client(), await scene.client()];
      const inspect = scene.store.inspect?.bind(scene.store);
      await oracle([one.driver, other.driver], subject, { seed, steps: random.steps, inspect });
    });
  }
}
