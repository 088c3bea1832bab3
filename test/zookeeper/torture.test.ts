// One server that is killed, and stopped for less and for more than a session, while clients of all kinds contend: who is
// inside is alone until it was told otherwise, and in the end nothing is left on the server.

import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import { childrenOf } from "../../src/drivers/zookeeper/client/recipes.ts";
import { zookeeper } from "../../src/drivers/zookeeper/driver.ts";
import type { Lock, Locks } from "../../src/index.ts";
import { createLocks } from "../../src/index.ts";
import { until } from "../support/wait-for.ts";
import { zookeeperScene } from "../support/zookeeper-scene.ts";

const WITHIN = 60_000;
const SESSION_MS = 2_000;
const LONG = process.env.HOLDFAST_LONG === "1";
const ROUNDS = LONG ? 6 : 1;
const TOLD = ["LOCK_LOST", "LOCK_TIMEOUT", "DRIVER_FAILED"];
const KEYS = ["a", "b", "c"];
const scene = zookeeperScene({ reapMs: 1_000 });

/** What the holders of one key have seen. */
type Register = { inside: Set<object>; last: bigint; grants: number; faults: string[] };

/** Holds for a moment, and goes at once when it is told that the lock is lost. */
async function held(lock: Lock, register: Register): Promise<void> {
  const me = {};
  const left = (): unknown => register.inside.delete(me);
  if (lock.signal.aborted) return;
  lock.signal.addEventListener("abort", left, { once: true });
  register.inside.add(me);
  register.grants++;
  if (register.inside.size > 1) register.faults.push(`two inside with token ${lock.token}`);
  if (lock.token <= register.last) register.faults.push(`token ${lock.token} after ${register.last}`);
  register.last = lock.token;
  await delay(Math.random() * 20);
  left();
}

async function contend(locks: Locks, registers: ReadonlyMap<string, Register>, isOver: () => boolean): Promise<void> {
  while (!isOver()) {
    const key = KEYS[Math.floor(Math.random() * KEYS.length)] as string;
    const kind = Math.random();
    const asked = kind < 0.2 ? locks.tryAcquire(key) : locks.acquire(key, { wait: kind < 0.5 ? 300 : WITHIN });
    try {
      const lock = await asked;
      if (lock === null) continue;
      await held(lock, registers.get(key) as Register);
      await lock.release();
    } catch (error) {
      if (!TOLD.includes((error as { code: string }).code)) throw error;
      await delay(20);
    }
  }
}

async function stopped(ms: number): Promise<void> {
  const { pid } = scene.server;
  process.kill(pid, "SIGSTOP");
  await delay(ms);
  process.kill(pid, "SIGCONT");
}

async function killed(): Promise<void> {
  await scene.server.stop("SIGKILL");
  await scene.server.start();
}

const FAULTS = [killed, () => stopped(1.5 * SESSION_MS), () => stopped(SESSION_MS / 2)];

test("a server killed and stopped under load: nobody is beside another, tokens rise, nothing is left", async () => {
  const registers = new Map(
    KEYS.map((key) => [key, { inside: new Set(), last: 0n, grants: 0, faults: [] } as Register]),
  );
  const grants = (): number => [...registers.values()].reduce((sum, one) => sum + one.grants, 0);
  let over = false;
  const clients = [{ handoffs: 1 }, {}, {}, { fair: false }].map(({ handoffs = 64, fair = true }) => {
    const driver = zookeeper({ servers: [scene.server.address], root: "/torture", sessionMs: SESSION_MS, fair });
    return createLocks(driver, { ttl: "session", handoffs });
  });
  scene.clients.push(...clients);
  const players = clients.flatMap((locks) => Array.from({ length: 6 }, () => contend(locks, registers, () => over)));
  for (let round = 0; round < ROUNDS; round++) {
    for (const fault of FAULTS.slice(0, LONG ? 3 : 2)) {
      const before = grants();
      await until(() => grants() > before + 30, { within: WITHIN, what: "the load" });
      await fault();
    }
  }
  const before = grants();
  await until(() => grants() > before + 30, { within: WITHIN, what: "grants after it all" });
  over = true;
  await Promise.all(players);
  for (const [key, { faults }] of registers) expect(faults, key).toEqual([]);
  for (const key of KEYS) {
    // whoever looks on has been through it all, too
    const isEmpty = async (): Promise<boolean> =>
      (await childrenOf(scene.zk, `/torture/${key}`).catch(() => ["unknown"])).length === 0;
    await until(isEmpty, { within: WITHIN, what: `an empty line of ${key}` });
  }
  const isClean = async (): Promise<boolean> => /Total watches:0\b/.test(await scene.server.ask("wchs"));
  await until(isClean, { within: WITHIN, what: "all watches to be gone" });
  await Promise.all(clients.map((locks) => locks.close()));
  // ours to look on, and the question's own
  expect((await scene.server.ask("cons")).trim().split("\n").length).toBeLessThanOrEqual(2);
}, 300_000);
