import { expect, test } from "vitest";
import { RecentReleases } from "../../../src/drivers/recent-releases.ts";

test("a claim counts as released when the store has confirmed its release, until it is claimed again", () => {
  const recent = new RecentReleases();
  recent.onRelease("claim");
  expect(recent.has("claim")).toBe(false);
  recent.onReleased("claim");
  expect(recent.has("claim")).toBe(true);
  recent.onClaim("claim");
  expect(recent.has("claim")).toBe(false);
});

test("a claim that is claimed again while its release is under way does not count", () => {
  const recent = new RecentReleases();
  recent.onRelease("claim");
  recent.onClaim("claim");
  recent.onReleased("claim");
  expect(recent.has("claim")).toBe(false);
});

test("at least the last 20,000 releases are kept, and at most twice as many", () => {
  const recent = new RecentReleases();
  const release = (id: string): void => {
    recent.onRelease(id);
    recent.onReleased(id);
  };
  recent.onRelease("slow");
  for (let index = 0; index < 20_000; index++) release(`${index}`);
  recent.onReleased("slow");
  expect([recent.has("slow"), recent.has("0")]).toEqual([true, true]);
  for (let index = 20_000; index < 60_000; index++) release(`${index}`);
  expect([recent.has("slow"), recent.has("19999"), recent.has("40000")]).toEqual([false, false, true]);
});
