// One server that is killed, and stopped for less and for more than a session, while clients of all kinds contend: a
// holder is alone until it is notified of the loss, and in the end nothing is left on the server.

import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import { listChildren } from "../../../src/drivers/zookeeper/client/helpers.ts";
import { zookeeper } from "../../../src/drivers/zookeeper/driver.ts";
import type { Lock, Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";

const TIMEOUT_MS = 60_000;
const SESSION_MS = 2_000;
const IS_LONG_RUN = process.env.HOLDFAST_LONG === "1";
const ROUNDS = IS_LONG_RUN ? 6 : 1;
const EXPECTED_ERRORS = ["LOCK_LOST", "LOCK_TIMEOUT", "LOCK_STORE_FAILED"];
const KEYS = ["a", "b", "c"];
const fixture = zookeeperFixture({ reapMs: 1_000 });

/** The observations of the holders of one key. */
type ExclusionRegister = { holders: Set<object>; last: bigint; grants: number; faults: string[] };

/** Holds for a moment, and leaves at once when the lock is lost. */
async function holdLock(lock: Lock, register: ExclusionRegister): Promise<void> {
  const marker = {};
  const leave = (): unknown => register.holders.delete(marker);
  if (lock.signal.aborted) return;
  lock.signal.addEventListener("abort", leave, { once: true });
  register.holders.add(marker);
  register.grants++;
  if (register.holders.size > 1) register.faults.push(`two inside with token ${lock.token}`);
  if (lock.token <= register.last) register.faults.push(`token ${lock.token} after ${register.last}`);
  register.last = lock.token;
  await delay(Math.random() * 20);
  leave();
}

async function runContender(
  locks: Locks,
  registers: ReadonlyMap<string, ExclusionRegister>,
  isOver: () => boolean,
): Promise<void> {
  while (!isOver()) {
    const key = KEYS[Math.floor(Math.random() * KEYS.length)] as string;
    const kind = Math.random();
    const pendingLock =
      kind < 0.2 ? locks.tryAcquire(key) : locks.acquire(key, { wait: kind < 0.5 ? 300 : TIMEOUT_MS });
    try {
      const lock = await pendingLock;
      if (lock === null) continue;
      await holdLock(lock, registers.get(key) as ExclusionRegister);
      await lock.release();
    } catch (error) {
      if (!EXPECTED_ERRORS.includes((error as { code: string }).code)) throw error;
      await delay(20);
    }
  }
}

async function pauseServer(ms: number): Promise<void> {
  const { pid } = fixture.server;
  process.kill(pid, "SIGSTOP");
  await delay(ms);
  process.kill(pid, "SIGCONT");
}

async function killServer(): Promise<void> {
  await fixture.server.stop("SIGKILL");
  await fixture.server.start();
}

const FAULTS = [killServer, () => pauseServer(1.5 * SESSION_MS), () => pauseServer(SESSION_MS / 2)];

test("a server killed and stopped under load: no two holders overlap, tokens rise, nothing is left", async () => {
  const registers = new Map(
    KEYS.map((key) => [key, { holders: new Set(), last: 0n, grants: 0, faults: [] } as ExclusionRegister]),
  );
  const grants = (): number =>
    [...registers.values()].reduce((sum, exclusionRegister) => sum + exclusionRegister.grants, 0);
  let isOver = false;
  const options: readonly { order?: "strict"; fair?: false }[] = [{ order: "strict" }, {}, {}, { fair: false }];
  const clients = options.map(({ order, fair = true }) => {
    const driver = zookeeper({ servers: [fixture.server.address], root: "/torture", sessionMs: SESSION_MS, fair });
    return createLocks(driver, { ttl: "session", order });
  });
  fixture.clients.push(...clients);
  const players = clients.flatMap((locks) =>
    Array.from({ length: 6 }, () => runContender(locks, registers, () => isOver)),
  );
  for (let round = 0; round < ROUNDS; round++) {
    for (const fault of FAULTS.slice(0, IS_LONG_RUN ? 3 : 2)) {
      const before = grants();
      await until(() => grants() > before + 30, { within: TIMEOUT_MS, what: "the load" });
      await fault();
    }
  }
  const before = grants();
  await until(() => grants() > before + 30, { within: TIMEOUT_MS, what: "grants after it all" });
  isOver = true;
  await Promise.all(players);
  for (const [key, { faults }] of registers) expect(faults, key).toEqual([]);
  for (const key of KEYS) {
    // the observing client has been through the same faults
    const isEmpty = async (): Promise<boolean> =>
      (await listChildren(fixture.observer, `/torture/${key}`).catch(() => ["unknown"])).length === 0;
    await until(isEmpty, { within: TIMEOUT_MS, what: `an empty line of ${key}` });
  }
  const isClean = async (): Promise<boolean> => /Total watches:0\b/.test(await fixture.server.runCommand("wchs"));
  await until(isClean, { within: TIMEOUT_MS, what: "all watches to be gone" });
  await Promise.all(clients.map((locks) => locks.close()));
  // ours to look on, and the question's own
  expect((await fixture.server.runCommand("cons")).trim().split("\n").length).toBeLessThanOrEqual(2);
}, 300_000);
