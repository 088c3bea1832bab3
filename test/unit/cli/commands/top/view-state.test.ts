import { expect, test } from "vitest";
import { KeyDecoder } from "../../../../../src/cli/commands/top/keys.ts";
import type { ViewState } from "../../../../../src/cli/commands/top/view-state.ts";
import { applyKey, clampOffset, INITIAL_VIEW } from "../../../../../src/cli/commands/top/view-state.ts";

const EXTENT = { rowCount: 50, pageRows: 19 };

function press(input: string, view: ViewState = INITIAL_VIEW): ViewState {
  const decoder = new KeyDecoder();
  const keys = [...decoder.push(input), ...decoder.flush()];
  return keys.reduce((state, key) => applyKey(state, key, EXTENT), view);
}

test("s selects the next order, r reverses it until the next one", () => {
  const orders = ["", "s", "ss", "sss", "ssss"].map((input) => press(input).order);
  expect(orders).toEqual(["waiters", "longestWait", "held", "key", "waiters"]);
  expect([press("r").isReversed, press("rr").isReversed, press("rs").isReversed]).toEqual([true, false, false]);
});

test("after / characters are text, also those that are commands elsewhere", () => {
  expect(press("/js ?q")).toMatchObject({
    filter: "js ?q",
    isEditingFilter: true,
    isPaused: false,
    isHelpShown: false,
  });
  expect(press("/a🔒\u007f")).toMatchObject({ filter: "a" });
  expect(press("/abc\u0015d")).toMatchObject({ filter: "d" });
  expect(press("/abc\rs")).toMatchObject({ filter: "abc", isEditingFilter: false, order: "longestWait" });
  expect(press("/abc\r/d")).toMatchObject({ filter: "abcd", isEditingFilter: true });
  expect(press("/abc\u001b")).toMatchObject({ filter: "", isEditingFilter: false });
  expect(press("/abc\r\u001b")).toMatchObject({ filter: "" });
  expect(press(`/${"x".repeat(600)}\u0007`).filter).toHaveLength(512);
});

test("keys scroll as far as there are rows", () => {
  const offsets = [
    "k",
    "j",
    "\u001b[B\u001b[Bk",
    "\u001b[6~",
    "\u001b[6~\u001b[6~",
    "\u001b[F\u001b[A",
    "\u001b[F\u001b[H",
  ];
  expect(offsets.map((input) => press(input).offset)).toEqual([0, 1, 1, 19, 31, 30, 0]);
  expect(press("\u001b[6~\u001b[5~").offset).toBe(0);
  expect(press("/\u001b[B").offset).toBe(1);
  // fewer rows than before
  expect(clampOffset(press("\u001b[F"), { rowCount: 20, pageRows: 19 }).offset).toBe(1);
  expect(applyKey(press("\u001b[F"), { name: "up", text: "" }, { rowCount: 20, pageRows: 19 }).offset).toBe(0);
});

test("space pauses and continues; any key closes the help", () => {
  expect([press(" ").isPaused, press("  ").isPaused]).toEqual([true, false]);
  expect(press("?")).toEqual({ ...INITIAL_VIEW, isHelpShown: true });
  expect(press("?s")).toEqual(INITIAL_VIEW);
});
