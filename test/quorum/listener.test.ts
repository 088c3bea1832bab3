import { afterEach, expect, test, vi } from "vitest";
import { claimOf } from "../support/redis-scene.ts";
import type { Link } from "./links.ts";
import { majority } from "./links.ts";

afterEach(() => vi.restoreAllMocks());

test("a fault of onMember breaks no lock, and is told of as a warning", async () => {
  const warned = vi.spyOn(process, "emitWarning").mockImplementation(() => undefined);
  const it = majority();
  const told: (string | null)[] = [];
  const ours = await it.join({
    onMember(member, error) {
      told.push(error === null ? null : `${member}`);
      throw new Error("a fault of the user's");
    },
  });
  const third = ours.links[2] as Link;
  third.trouble = "silent";
  expect(await it.within(2_000, ours.driver.list({ prefix: "" }, 10))).toEqual([]);
  third.trouble = null;
  const claim = claimOf("key", { ttlMs: 10_000 });
  expect(await it.within(10, ours.driver.claim(claim))).toMatchObject({ state: "held" });
  expect(await it.within(10, ours.driver.release([claim]))).toEqual([true]);
  expect(told).toEqual(["2", null]);
  expect(warned).toHaveBeenCalledTimes(2);
});
