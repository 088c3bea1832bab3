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
      for (const [index, [action, pick]] of steps.entries()) {
        const item: TestItem = { name: index, previous: null, next: null };
        if (action === "push") {
          list.push(item);
          model.push(item);
        } else if (action === "insert") {
          const position = pick % (model.length + 1);
          list.insertAfter(position === 0 ? null : (model[position - 1] as TestItem), item);
          model = model.toSpliced(position, 0, item);
        } else if (model.length > 0) {
          const position = pick % model.length;
          const removedItem = model[position] as TestItem;
          list.remove(removedItem);
          model = model.toSpliced(position, 1);
          expect([removedItem.previous, removedItem.next]).toEqual([null, null]);
        }
        expect([...list].map(({ name }) => name)).toEqual(model.map(({ name }) => name));
        expect(list.size).toBe(model.length);
        expect(list.first).toBe(model[0] ?? null);
        expect(list.last).toBe(model.at(-1) ?? null);
      }
    }),
  );
});
