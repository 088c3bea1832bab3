// The Web Locks API over a lock server, whose holders and waiters are in other clients.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { lockServer } from "../../../src/drivers/server/driver.ts";
import type { Server } from "../../../src/server/server.ts";
import { serve } from "../../../src/server/server.ts";
import { until } from "../../../src/testing/until.ts";
import type { WebLock } from "../../../src/web-locks/index.ts";
import { webLocks } from "../../../src/web-locks/index.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { cleanUpAfterEach, onCleanup, startServer } from "../../support/server-fixture.ts";
import { defineWebLockTests } from "../../support/web-lock-behaviors.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

function openLocks(path: string, label: string): Locks {
  const locks = createLocks(lockServer({ path }), { label });
  onCleanup(() => locks.close());
  return locks;
}

describe("one client", () => {
  // one server for all: starting one for each test would take most of the time
  const state = mkdtempSync(join(tmpdir(), "holdfast-web-locks-"));
  const path = join(state, "socket");
  let server: Server;
  beforeAll(async () => {
    server = await serve({ listen: `holdfast+unix:${path}`, state: join(state, "state") });
  });
  afterAll(async () => {
    await server.close();
    rmSync(state, { recursive: true, force: true });
  });

  defineWebLockTests(async () => webLocks(openLocks(path, "one")));
});

test("a lock is stolen from another client, whose request rejects; it may ask again", async () => {
  const { path } = await startServer();
  const [one, two] = [webLocks(openLocks(path, "one")), webLocks(openLocks(path, "two"))];
  let held: WebLock | null = null;
  const victim = one.request("name", (lock) => {
    held = lock;
    return new Promise((resolve) => lock?.signal.addEventListener("abort", () => resolve("too late")));
  });
  const rejected = assert.rejects(victim, { name: "AbortError" });
  const { token } = await until<WebLock>(() => held as WebLock, { within: 5_000, what: "the holder" });
  const next: Promise<string>[] = [];
  const later = await two.request("name", { steal: true }, async (lock) => {
    next.push(one.request("name", () => "again"));
    assert.deepEqual((await two.query()).held, [{ name: "name", mode: "exclusive", clientId: "two" }]);
    return lock?.token ?? 0n;
  });
  await rejected;
  assert.ok(later > token);
  assert.deepEqual(await Promise.all(next), ["again"]);
});
