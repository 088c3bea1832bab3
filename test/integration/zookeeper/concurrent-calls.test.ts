// Several calls for one claim in flight at the same time: an abandoned one, and the next.

import { setImmediate as turn } from "node:timers/promises";
import { expect, test } from "vitest";
import { toReleases } from "../../support/releases.ts";
import { makeSessionClaim, zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";

const fixture = zookeeperFixture({}, { root: "/at-once" });
const { openDriver } = fixture;

async function queueNodes(key: string): Promise<readonly string[]> {
  return (await fixture.observer.children(`/at-once/${key}`)).names;
}

test("a renewal during the claim's first call does not take its earlier list for the claim's end", async () => {
  const [lockClient, other] = [await openDriver(), await openDriver()];
  const [holder, otherClaim, waiting, lateClaim] = [
    makeSessionClaim("k"),
    makeSessionClaim("other"),
    makeSessionClaim("other"),
    makeSessionClaim("k"),
  ];
  await other.claim(holder);
  await other.claim(otherClaim);
  expect((await lockClient.claim(waiting)).state).toBe("waiting");
  const pendingClaim = lockClient.claim(lateClaim);
  await turn();
  await lockClient.renew([waiting, lateClaim]);
  expect((await pendingClaim).state).toBe("waiting");
  expect((await lockClient.renew([lateClaim]))[0]?.state, "its node is there").toBe("waiting");
  expect(await queueNodes("k")).toHaveLength(2);
  await other.release(toReleases(holder));
  expect((await lockClient.renew([lateClaim]))[0]?.state).toBe("held");
  await lockClient.release(toReleases(waiting, lateClaim));
  await other.release(toReleases(otherClaim));
});

test("without fair order a claim called twice as its turn comes holds only with its node", async () => {
  const [lockClient, other] = [await openDriver({ fair: false }), await openDriver()];
  for (let round = 0; round < 60; round++) {
    const [holder, repeatedClaim] = [makeSessionClaim("u"), makeSessionClaim("u")];
    await other.claim(holder);
    const first = lockClient.claim(repeatedClaim);
    await turn();
    const calls = [
      first,
      other.release(toReleases(holder)),
      lockClient.claim(repeatedClaim),
      lockClient.renew([repeatedClaim]).then(([answer]) => answer),
    ];
    const answers = (await Promise.all(calls)) as readonly ({ state?: string } | undefined)[];
    const isHeld = answers.some((answer) => answer?.state === "held");
    if (isHeld) {
      expect(await queueNodes("u"), `round ${round}`).toHaveLength(1);
      expect((await lockClient.renew([repeatedClaim]))[0]?.state, `round ${round}`).toBe("held");
    }
    await lockClient.release(toReleases(repeatedClaim));
    expect(await queueNodes("u")).toEqual([]);
  }
});
