import { describe, expect, test } from "vitest";
import { describePause, isLate, judgeFreshness } from "../../../src/dashboard/model/freshness.ts";
import { describeHolding, findLost, listOtherKeys, splitQueue } from "../../../src/dashboard/model/key-queue.ts";
import { estimateLease, LeaseScale, measureLease } from "../../../src/dashboard/model/lease-scale.ts";
import { describeRevocation, refusalFor, toReason } from "../../../src/dashboard/model/revocation.ts";
import { describeTraits } from "../../../src/dashboard/model/store-text.ts";
import { makeVisible, splitTail, splitVisible } from "../../../src/dashboard/model/visible-text.ts";
import { makeClaim, makeEvent, makeWaiter } from "./samples.ts";

describe("texts of users", () => {
  test("control characters are visible, each a part of its own", () => {
    expect(splitVisible("a\tb\u202e")).toEqual([
      { text: "a", isControl: false },
      { text: "\\t", isControl: true },
      { text: "b", isControl: false },
      { text: "U+202E", isControl: true },
    ]);
    expect(makeVisible("\u0000\u001b\u007f\u009f\ud800")).toBe("\\x00\\x1b\\x7f\\x9fU+D800");
  });

  test("ordinary text of any script stays as it is", () => {
    for (const text of ["", "مفتاح", "🔒👩‍👩‍👧", "<b>"]) expect(makeVisible(text)).toBe(text);
  });

  test("a long text keeps its end, by whole characters", () => {
    expect(splitTail("short")).toEqual({ head: "short", tail: "" });
    const text = `${"x".repeat(40)}👩‍👩‍👧`;
    const { head, tail } = splitTail(text);
    expect(head + tail).toBe(text);
    expect(tail).toBe("xxxxxxxx👩‍👩‍👧");
  });
});

describe("leases", () => {
  test("a length is estimated, and learnt", () => {
    expect(estimateLease(21_000)).toBe(30_000);
    expect(estimateLease(50_000_000)).toBe(50_000_000);
    const scale = new LeaseScale();
    scale.learn([makeClaim("k", { remainingMs: 29_000 })]);
    scale.learn([makeClaim("k", { remainingMs: 9_000 })]);
    expect(scale.lengthOf(["tag of k"], 9_000)).toBe(30_000);
    scale.learn([makeClaim("k", { remainingMs: 9_000, leaseMs: 12_000 })]);
    expect(scale.lengthOf(["tag of k"], 9_000)).toBe(12_000);
    scale.learn([]);
    expect(scale.lengthOf(["tag of k"], 9_000)).toBe(10_000);
  });

  test("what is left of one", () => {
    expect(measureLease(15_001, 30_000).level).toBe("ample");
    expect(measureLease(12_000, 30_000).level).toBe("low");
    expect(measureLease(3_000, 30_000)).toEqual({ part: 0.1, level: "critical" });
    expect(measureLease(40_000, 30_000).part).toBe(1);
    expect(measureLease(0, 0).part).toBe(0);
  });
});

describe("how old a list is", () => {
  const read = { readAt: 1_000, intervalMs: 2_000, storeFailure: null, requestFailure: null };

  test("it is late after three intervals", () => {
    expect(isLate(read, 7_000)).toBe(false);
    expect(judgeFreshness(read, 7_000)).toEqual({ state: "live", ageMs: 6_000, reason: null });
    expect(judgeFreshness(read, 7_001).state).toBe("stale");
  });

  test("a failure counts at once", () => {
    expect(judgeFreshness({ ...read, storeFailure: "down" }, 1_500)).toEqual({
      state: "stale",
      ageMs: 500,
      reason: "down",
    });
    expect(judgeFreshness({ ...read, requestFailure: "gone", storeFailure: "down" }, 1_500).state).toBe("disconnected");
  });

  test("before the first list it is loading, with the reason why that takes long", () => {
    const none = { ...read, readAt: null };
    expect(judgeFreshness(none, 9_000)).toEqual({ state: "loading", ageMs: 0, reason: null });
    expect(judgeFreshness({ ...none, storeFailure: "busy" }, 9_000).reason).toBe("busy");
    expect(judgeFreshness({ ...none, requestFailure: "gone" }, 9_000).state).toBe("disconnected");
  });

  test("a pause has its end", () => {
    const until = new Date(2026, 10, 30, 10, 42, 7).getTime();
    expect(describePause({ reason: "recovery", remainingMs: 1 }, until)).toBe(
      "The store grants no new locks until 10:42:07 at the latest (recovery after a restart).",
    );
  });
});

describe("one key", () => {
  test("its claims in their order, with the other keys of each", () => {
    const both = makeClaim("k", {
      locks: [
        { key: "j", mode: "exclusive" },
        { key: "k", mode: "exclusive" },
      ],
    });
    const { holders, waiters } = splitQueue([both, makeWaiter("k"), makeClaim("other")], "k");
    expect([holders, waiters].map(({ length }) => length)).toEqual([1, 1]);
    expect(listOtherKeys(both, "k")).toEqual(["j"]);
  });

  test("the permits of all holders of a semaphore", () => {
    const take = (permits: number) => makeClaim("k", { locks: [{ key: "k", mode: "semaphore", permits, limit: 4 }] });
    expect(describeHolding([take(1), take(2)], "k")).toBe("3 of 4 permits");
    expect(describeHolding([makeClaim("k")], "k")).toBe("exclusive");
  });

  test("a holder that was revoked is known by its event", () => {
    expect([...findLost([makeEvent(1, { kind: "revoked", tag: "x" }), makeEvent(2)])]).toEqual(["x"]);
  });
});

describe("a revocation", () => {
  test("says when the key is free", () => {
    expect(describeRevocation(12_400)).toContain("or its lease ends, in 12 s at the latest.");
    expect(describeRevocation(null)).toContain("or its session ends.");
  });

  test("needs a reason of 1 to 256 characters", () => {
    expect(toReason("  ")).toBeNull();
    expect(toReason(" dead ")).toBe("dead");
    expect(toReason("🔒".repeat(256))).not.toBeNull();
    expect(toReason("x".repeat(257))).toBeNull();
  });

  test("is refused without a token, or for the reason that the gateway gives", () => {
    expect(refusalFor(makeClaim("k"), null)).toBeNull();
    expect(refusalFor(makeClaim("k", { token: null }), null)).toContain("does not list the token");
    expect(refusalFor(makeClaim("k"), "read-only")).toBe("read-only");
  });
});

test("traits of a store have a value and a meaning each", () => {
  const lines = describeTraits({
    lease: { claim: false, sessionMs: 10_000, endsWithConnection: true },
    manyKeys: false,
    permits: "one",
    fencing: false,
    fifo: false,
    durability: "process",
    recall: false,
    list: "own",
  });
  expect(lines.every(({ value, meaning }) => value !== "" && meaning !== "")).toBe(true);
  expect(lines[0]?.value).toBe("sessions of 10 s");
});
