/** A majority of lock servers on Unix sockets, where the end of a connection is the death of its client. */

import { expect, test } from "vitest";
import { quorum } from "../../src/drivers/quorum/driver.ts";
import { server } from "../../src/drivers/server/driver.ts";
import type { Locks } from "../../src/index.ts";
import { createLocks } from "../../src/index.ts";
import { cleanUp, later, running } from "../server/support.ts";
import { leakCheck } from "../support/leak-check.ts";

leakCheck();
cleanUp();

test("a detached lock outlives its client, also with a member away", async () => {
  const servers = [await running(), await running(), await running()];
  const client = (): Locks => {
    const locks = createLocks(quorum(servers.map(({ path }) => server({ path }))), { ttl: "20s" });
    later(() => locks.close());
    return locks;
  };
  for (const isOneAway of [false, true]) {
    const one = client();
    const lock = await one.acquire("key");
    if (isOneAway) await servers[2]?.close();
    const reference = await lock.detach();
    await one.close();
    const other = client();
    expect(await other.tryAcquire("key")).toBeNull();
    const again = await other.attach(reference);
    expect(again.token).toBe(lock.token);
    expect(await again.release()).toBe(true);
    const next = await other.acquire("key", { wait: "5s" });
    expect(next.token).toBeGreaterThan(lock.token);
    await next.release();
  }
}, 20_000);
