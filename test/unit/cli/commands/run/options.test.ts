import { describe, expect, test } from "vitest";
import type { RunFlags } from "../../../../../src/cli/commands/run/options.ts";
import { parseRunOptions } from "../../../../../src/cli/commands/run/options.ts";
import { toCommandError } from "../../../../../src/cli/errors.ts";

function usageErrorOf(keys: readonly string[], flags: RunFlags, command: readonly string[] = ["true"]): string {
  try {
    parseRunOptions(keys, flags, command);
  } catch (error) {
    const { kind: errorKind, code, message } = toCommandError(error, "the store");
    expect({ why: errorKind, code }).toEqual({ why: "usage", code: 64 });
    return message;
  }
  throw new Error("nothing was wrong with it");
}

describe("invalid flags of run are wrong usage, and the message names the flag", () => {
  test.each<readonly [RunFlags, RegExp]>([
    [{ ttl: "5ms" }, /^--ttl must be from 100ms to 36500d .*, not "5ms"$/],
    [{ ttl: "soon" }, /^--ttl must be a duration/],
    [{ ttl: "10s", grace: "6s" }, /^--grace must be at most half of the lease of 10 s/],
    [{ grace: "5 s" }, /^--grace must be a duration/],
    [{ wait: "-1s" }, /^--wait must be a duration/],
    [{ wait: "1e9h" }, /^--wait must be a duration/],
    [
      { wait: "876001h" },
      /^--wait must be from 0ms to 36500d \(a hundred years\), in whole milliseconds, not "876001h"$/,
    ],
    [{ wait: "0.5ms" }, /^--wait must be .* in whole milliseconds/],
    [{ maxHold: "5 s" }, /^--max-hold must be a duration/],
    [{ wait: "1min" }, /^--wait must be .* not "1min" \(units: ms, s, m, h and d\)$/],
    [{ wait: "30s1m" }, /^--wait must be a duration/],
    [{ wait: "" }, /^--wait must be a duration/],
    [{ wait: "3s", noWait: true }, /^--no-wait and --wait cannot be combined$/],
    [{ ttl: "0.05" }, /^--ttl must be from 100ms to 36500d/],
    [{ permits: "3/2" }, /^--permits must be n\/m with 1 <= n <= m, such as 1\/4, not "3\/2"$/],
    [{ permits: "0/2" }, /^--permits must be n\/m/],
    [{ permits: "1" }, /^--permits must be n\/m/],
    [{ permits: "1/9999999999" }, /^--permits must be n\/m/],
    [{ permits: "1/2", shared: true }, /cannot be combined/],
    [{ onLost: "cry" }, /^--on-lost must be term, kill or ignore/],
    [{ conflictExitCode: "256" }, /^--conflict-exit-code must be a number from 0 to 255/],
    [{ conflictExitCode: "x" }, /^--conflict-exit-code must be a number/],
  ])("%j", (flags, message) => {
    expect(usageErrorOf(["k"], flags)).toMatch(message);
  });

  test("keys: none, an empty one, one too long, several with several permits", () => {
    expect(usageErrorOf([], {})).toMatch(/no key given/);
    expect(usageErrorOf([""], {})).toMatch(/key must not be empty/);
    expect(usageErrorOf(["x".repeat(513)], {})).toMatch(/at most 512 bytes/);
    expect(usageErrorOf(["a", "b"], { permits: "2/3" })).toMatch(/one permit of each key/);
    expect(usageErrorOf([...Array(129).keys()].map(String), {})).toBe("too many keys: at most 128, not 129");
  });

  test("a missing command is wrong usage", () => {
    expect(usageErrorOf(["k"], {}, [])).toMatch(/no command given; it follows "--": holdfast run k -- COMMAND/);
  });
});

test("flags become numbers, and omitted flags stay undefined", () => {
  const flags = { wait: "1.5", ttl: "60", grace: "0", maxHold: "7200", permits: "2/4", conflictExitCode: "0" };
  expect(parseRunOptions(["k", "k"], flags, ["a", "b"])).toMatchObject({
    request: { keys: ["k"], mode: { permits: 2, limit: 4 } },
    command: ["a", "b"],
    waitMs: 1_500,
    ttl: 60_000,
    graceMs: 0,
    maxHold: 7_200_000,
    conflictExitCode: 0,
    onLost: "term",
  });
  const open = parseRunOptions(["k"], {}, ["a"]);
  expect(open).toMatchObject({ waitMs: undefined, ttl: undefined, graceMs: undefined, request: { mode: "exclusive" } });
  expect(parseRunOptions(["k"], { noWait: true }, ["a"]).waitMs).toBe(0);
  expect(parseRunOptions(["k"], { ttl: "session", grace: "1h" }, ["a"]).ttl).toBe("session");
});

test.each([
  ["10", 10_000],
  ["0.5", 500],
  ["0", 0],
  ["1m30s", 90_000],
  ["1d", 86_400_000],
  ["2h500ms", 7_200_500],
])("--wait %s is %i ms: a number alone is seconds, as in flock(1)", (wait, ms) => {
  expect(parseRunOptions(["k"], { wait }, ["a"]).waitMs).toBe(ms);
});
