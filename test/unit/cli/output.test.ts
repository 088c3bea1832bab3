import { expect, test } from "vitest";
import { escapeControl, formatJsonLine, quoteKeys } from "../../../src/cli/output.ts";
import { describeQueue } from "../../../src/cli/wait-reporter.ts";

test("control, bidi, separator and lone surrogate characters are shown by their numbers", () => {
  expect(escapeControl("a\u0000\n\u001b[1m\u007f\u009b\u200f\u202e\u2066\u2028\ud800z")).toBe(
    "a\\u{0}\\u{a}\\u{1b}[1m\\u{7f}\\u{9b}\\u{200f}\\u{202e}\\u{2066}\\u{2028}\\u{d800}z",
  );
  expect(escapeControl("ünï 漢字 🔒")).toBe("ünï 漢字 🔒");
});

test("a line of JSON is one line, harmless in a terminal, and parses to the same value", () => {
  const value = { label: "a\u202e\n\u2028\u{e0001}\ud800", token: 2n ** 60n, at: null };
  const line = formatJsonLine(value);
  expect(line).toMatch(/^[\x20-\x7e]+$/);
  expect(JSON.parse(line)).toEqual({ ...value, token: String(value.token) });
});

test("keys are joined as in an English list", () => {
  expect(quoteKeys(["a"])).toBe('"a"');
  expect(quoteKeys(["a", "b", "c"])).toBe('"a", "b" and "c"');
});

test("the holders in the way: who, for how long, and other details", () => {
  const holder = "ana@web-1 pid 4121 (node)";
  expect(describeQueue({ holder, heldForMs: 720_000, renewedAgoMs: 3_000, ahead: 2 })).toBe(
    "held by ana@web-1 pid 4121 (node) for 12 m, lease renewed 3 s ago, 2 ahead of you",
  );
  expect(describeQueue({ ahead: 0 })).toBe("its holder is not shown: it has just ended, or may not be seen");
});
