import { describe, expect, test } from "vitest";
import { parseDuration } from "../../../src/util/duration.ts";

describe("a duration", () => {
  test.each([
    [250, 250],
    ["250ms", 250],
    ["1.5s", 1_500],
    ["10m", 600_000],
    ["1h", 3_600_000],
    ["1d", 86_400_000],
    ["1m30s", 90_000],
    ["1.5h1ms", 5_400_001],
    ["1d2h3m4s5ms", 93_784_005],
    ["0s", 0],
    ["36500d", 3_153_600_000_000],
  ])("%j is %i ms", (text, ms) => {
    expect(parseDuration(text, "ttl")).toBe(ms);
  });

  test.each(["", "5", "s", "1min", "1s1m", "1m1m", "1 m", "-1s", "1e3s", "1m30", "0.5ms", "36501d", "1.s", ".5s"])(
    "%j is no duration, and the message names the argument and the expected form",
    (text) => {
      expect(() => parseDuration(text, "ttl")).toThrow(
        /^ttl must be a whole number of milliseconds .* such as "30s", "1m30s" or "1d", not "/,
      );
    },
  );
});
