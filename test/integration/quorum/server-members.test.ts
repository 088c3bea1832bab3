/** A majority of lock servers on Unix sockets, where the end of a connection is the death of its client. */

import { expect, test } from "vitest";
import { quorum } from "../../../src/drivers/quorum/driver.ts";
import { lockServer } from "../../../src/drivers/server/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { cleanUpAfterEach, onCleanup, startServer } from "../../support/server-fixture.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

test("a detached lock outlives its client, also with a member missing", async () => {
  const servers = [await startServer(), await startServer(), await startServer()];
  const client = (): Locks => {
    const locks = createLocks(quorum(servers.map(({ path }) => lockServer({ path }))), { ttl: "20s" });
    onCleanup(() => locks.close());
    return locks;
  };
  for (const isOneAway of [false, true]) {
    const locks = client();
    const lock = await locks.acquire("key");
    if (isOneAway) await servers[2]?.close();
    const reference = await lock.detach();
    await locks.close();
    const otherLocks = client();
    expect(await otherLocks.tryAcquire("key")).toBeNull();
    const attachedLock = await otherLocks.attach(reference);
    expect(attachedLock.token).toBe(lock.token);
    expect(await attachedLock.release()).toBe(true);
    const next = await otherLocks.acquire("key", { wait: "5s" });
    expect(next.token).toBeGreaterThan(lock.token);
    await next.release();
  }
}, 20_000);
