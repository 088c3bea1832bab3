import { afterEach, expect, test, vi } from "vitest";
import { resolveWarn } from "../../../src/drivers/warnings.ts";

afterEach(() => void vi.useRealTimers());

test("a listener gets the same warning once a minute, and another one at once", () => {
  vi.useFakeTimers();
  const warnings: string[] = [];
  const warn = resolveWarn((warning) => warnings.push(warning));
  for (let call = 0; call < 100; call++) warn(call % 2 === 0 ? "a" : "b");
  expect(warnings).toEqual(["a", "b"]);
  vi.advanceTimersByTime(59_999);
  warn("a");
  expect(warnings).toEqual(["a", "b"]);
  vi.advanceTimersByTime(1);
  warn("a");
  warn("a");
  expect(warnings).toEqual(["a", "b", "a"]);
});

test("an exception of the listener does no harm", () => {
  const warn = resolveWarn(() => {
    throw new Error("of the listener");
  });
  expect(() => warn("a")).not.toThrow();
});
