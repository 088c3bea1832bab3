import { expect, test } from "vitest";
import type { Key } from "../../../../../src/cli/commands/top/keys.ts";
import { KeyDecoder } from "../../../../../src/cli/commands/top/keys.ts";

function namesOf(keys: readonly Key[]): string {
  return keys.map(({ name, text }) => (name === "character" ? text : name)).join(" ");
}

test.each([
  ["qs/漢🔒", "q s / 漢 🔒"],
  ["\u001b[A\u001b[B\u001bOA\u001bOB", "up down up down"],
  ["\u001b[5~\u001b[6~\u001b[H\u001b[4~\u001bOF", "pageUp pageDown home end end"],
  ["\r\n\u007f\b\u0015", "enter enter backspace backspace clearLine"],
  ["\u0003\u001a\u000c", "interrupt suspend redraw"],
  ["\u001bq", "escape q"],
  // sequences of keys without a meaning here, and other control characters
  ["\u001b[1;5C\u001b[24~\u0007x", "unknown unknown unknown x"],
])("the input %j is the keys %s", (input, names) => {
  const decoder = new KeyDecoder();
  expect(namesOf(decoder.push(input))).toBe(names);
  expect(decoder.isUnfinished).toBe(false);
});

test("a sequence may arrive in parts; alone its first character is the Escape key", () => {
  const decoder = new KeyDecoder();
  for (const part of ["\u001b", "[", "5"]) {
    expect(decoder.push(part)).toEqual([]);
    expect(decoder.isUnfinished).toBe(true);
  }
  expect(namesOf(decoder.push("~j"))).toBe("pageUp j");
  expect(namesOf(decoder.push("k\u001b"))).toBe("k");
  expect(namesOf(decoder.flush())).toBe("escape");
  expect(decoder.isUnfinished).toBe(false);
});
