import { describe, expect, test } from "vitest";
import { publicTag } from "../../../src/util/ids.ts";
import { MAX_KEY_BYTES } from "../../../src/util/keys.ts";
import { makeClaim } from "../../support/claims.ts";
import type { TestMember } from "./quorum-fixture.ts";
import { createQuorumFixture, settleWithin } from "./quorum-fixture.ts";

describe("the list of a majority", () => {
  test("a claim on a key too long for its ticket's name is listed as held", async () => {
    const fixture = await createQuorumFixture();
    const key = "k".repeat(MAX_KEY_BYTES);
    await settleWithin(fixture, 10, fixture.driver.claim(makeClaim(key)));
    for (const prefix of ["", "k", key]) {
      const { items } = await settleWithin(fixture, 10, fixture.driver.list({ prefix }, { max: 10 }));
      expect(items, `prefix of ${prefix.length}`).toMatchObject([{ answer: { state: "held" } }]);
    }
  });

  test("a list in one page has the holder first, then the waiters by waiting time", async () => {
    const fixture = await createQuorumFixture();
    const claims = Array.from({ length: 5 }, () => makeClaim("key", { ttlMs: 60_000 }));
    for (const claim of claims) {
      await settleWithin(fixture, 10, fixture.driver.claim(claim));
      await fixture.clock.advance(100);
    }
    const { items } = await settleWithin(fixture, 10, fixture.driver.list({ prefix: "" }, { max: 10 }));
    expect(items.map(({ tag }) => tag)).toEqual(claims.map(({ id }) => publicTag(id)));
  });

  test("pages omit and repeat no claim, in whatever order the members have them, and when one is late", async () => {
    const fixture = await createQuorumFixture();
    const [one, two, three] = fixture.members as [TestMember, TestMember, TestMember];
    const claims = Array.from({ length: 9 }, (_, index) => makeClaim(`key ${index % 2}`, { ttlMs: 60_000 }));
    for (const claim of claims) await one.driver.claim(claim);
    for (const claim of claims.toReversed()) await two.driver.claim(claim);
    const tags: string[] = [];
    let after: string | undefined;
    for (const claim of claims) {
      const page = await settleWithin(fixture, 10, fixture.driver.list({ prefix: "" }, { max: 1, after }));
      tags.push(...page.items.map(({ tag }) => tag));
      after = page.next;
      // reaches the third member gradually
      await three.driver.claim(claim);
    }
    expect(after).toBeUndefined();
    expect(tags.sort()).toEqual(claims.map(({ id }) => publicTag(id)).sort());
  });
});
