import { afterEach, expect, test, vi } from "vitest";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import type { FaultyLink } from "./faulty-links.ts";
import { createLinkedQuorum } from "./faulty-links.ts";

afterEach(() => vi.restoreAllMocks());

test("an error of onMember breaks no lock, and is reported as a warning", async () => {
  const warned = vi.spyOn(process, "emitWarning").mockImplementation(() => undefined);
  const linkedQuorum = createLinkedQuorum();
  const pushes: (string | null)[] = [];
  const client = await linkedQuorum.openClient({
    onMember(member, error) {
      pushes.push(error === null ? null : `${member}`);
      throw new Error("a fault of the user's");
    },
  });
  const third = client.links[2] as FaultyLink;
  third.fault = "silent";
  expect((await linkedQuorum.settleWithin(2_000, client.driver.list({ prefix: "" }, { max: 10 }))).items).toEqual([]);
  third.fault = null;
  const claim = makeClaim("key", { ttlMs: 10_000 });
  expect(await linkedQuorum.settleWithin(10, client.driver.claim(claim))).toMatchObject({ state: "held" });
  expect(await linkedQuorum.settleWithin(10, client.driver.release(toReleases(claim)))).toEqual([true]);
  expect(pushes).toEqual(["2", null]);
  expect(warned).toHaveBeenCalledTimes(2);
});
