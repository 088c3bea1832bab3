import fc from "fast-check";
import { expect, test } from "vitest";
import type { Linked } from "../../../src/util/linked-list.ts";
import { LinkedList } from "../../../src/util/linked-list.ts";

interface TestItem extends Linked<TestItem> {
  readonly name: number;
}

test("a linked list equals an array after any insertions and removals", () => {
  const commands = fc.array(fc.tuple(fc.constantFrom("push", "insert", "remove"), fc.nat()), { maxLength: 40 });
  fc.assert(
    fc.property(commands, (steps) => {
      const list = new LinkedList<TestItem>();
      let model: TestItem[] = [];
      for (const [index, [what, pick]] of steps.entries()) {
        const item: TestItem = { name: index, previous: null, next: null };
        if (what === "push") {
          list.push(item);
          model.push(item);
        } else if (what === "insert") {
          const at = pick % (model.length + 1);
          list.insertAfter(at === 0 ? null : (model[at - 1] as TestItem), item);
          model = model.toSpliced(at, 0, item);
        } else if (model.length > 0) {
          const at = pick % model.length;
          const gone = model[at] as TestItem;
          list.remove(gone);
          model = model.toSpliced(at, 1);
          expect([gone.previous, gone.next]).toEqual([null, null]);
        }
        expect([...list].map(({ name }) => name)).toEqual(model.map(({ name }) => name));
        expect(list.size).toBe(model.length);
        expect(list.first).toBe(model[0] ?? null);
        expect(list.last).toBe(model.at(-1) ?? null);
      }
    }),
  );
});
