// Several calls for one claim in flight at the same time: an abandoned one, and the next.

import { setImmediate as turn } from "node:timers/promises";
import { expect, test } from "vitest";
import { toReleases } from "../../support/releases.ts";
import { makeSessionClaim, zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";

const fixture = zookeeperFixture({}, { root: "/at-once" });
const { openDriver: opened } = fixture;

async function queueNodes(key: string): Promise<readonly string[]> {
  return (await fixture.observer.children(`/at-once/${key}`)).names;
}

test("a renewal during the claim's first call does not take its earlier list for the claim's end", async () => {
  const [one, other] = [await opened(), await opened()];
  const [holder, elsewhere, waiting, late] = [
    makeSessionClaim("k"),
    makeSessionClaim("other"),
    makeSessionClaim("other"),
    makeSessionClaim("k"),
  ];
  await other.claim(holder);
  await other.claim(elsewhere);
  expect((await one.claim(waiting)).state).toBe("waiting");
  const claimed = one.claim(late);
  await turn();
  await one.renew([waiting, late]);
  expect((await claimed).state).toBe("waiting");
  expect((await one.renew([late]))[0]?.state, "its node is there").toBe("waiting");
  expect(await queueNodes("k")).toHaveLength(2);
  await other.release(toReleases(holder));
  expect((await one.renew([late]))[0]?.state).toBe("held");
  await one.release(toReleases(waiting, late));
  await other.release(toReleases(elsewhere));
});

test("without fair order a claim called twice as its turn comes holds only with its node", async () => {
  const [one, other] = [await opened({ fair: false }), await opened()];
  for (let round = 0; round < 60; round++) {
    const [holder, twice] = [makeSessionClaim("u"), makeSessionClaim("u")];
    await other.claim(holder);
    const first = one.claim(twice);
    await turn();
    const calls = [
      first,
      other.release(toReleases(holder)),
      one.claim(twice),
      one.renew([twice]).then(([answer]) => answer),
    ];
    const answers = (await Promise.all(calls)) as readonly ({ state?: string } | undefined)[];
    const isHeld = answers.some((answer) => answer?.state === "held");
    if (isHeld) {
      expect(await queueNodes("u"), `round ${round}`).toHaveLength(1);
      expect((await one.renew([twice]))[0]?.state, `round ${round}`).toBe("held");
    }
    await one.release(toReleases(twice));
    expect(await queueNodes("u")).toEqual([]);
  }
});
