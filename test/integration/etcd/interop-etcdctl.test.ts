// `etcdctl lock`, `etcdctl elect`, etcd's own Go client and Holdfast on one name: real processes of each on one server.

import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { etcd } from "../../../src/drivers/etcd/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import type { ContenderProcess } from "../../support/curator/contender-process.ts";
import { startHoldfastContender } from "../../support/curator/contender-process.ts";
import type { ExclusionRegister, RegisterOptions } from "../../support/curator/exclusion-register.ts";
import { openExclusionRegister } from "../../support/curator/exclusion-register.ts";
import { etcdContenderUnavailableReason, startEtcdContender } from "../../support/etcd-client/contender-process.ts";
import type { EtcdctlHolder, EtcdctlOptions } from "../../support/etcd-client/etcdctl.ts";
import { runUnderEtcdctlLock, startEtcdctlElect, startEtcdctlLock } from "../../support/etcd-client/etcdctl.ts";
import type { EtcdServer } from "../../support/stores/etcd.ts";
import { startEtcd } from "../../support/stores/etcd.ts";
import { readEtcdQueue } from "../../support/stores/etcd-inspector.ts";

const TIMEOUT_MS = 20_000;
/** As short as a busy machine lets a lease be kept alive. */
const TTL_SECONDS = 3;
/** Of each contender. */
const CYCLES = process.env.HOLDFAST_LONG === "1" ? 250 : 25;
const NO_GO = etcdContenderUnavailableReason();

let server: EtcdServer;
let name = "";
let count = 0;
const disposables: AsyncDisposable[] = [];

beforeAll(async () => {
  server = await startEtcd();
}, 60_000);
afterAll(() => server[Symbol.asyncDispose]());
afterEach(async () => {
  await Promise.all(disposables.splice(0).map((disposable) => disposable[Symbol.asyncDispose]()));
});

function disposeLater<T extends AsyncDisposable>(disposable: T): T {
  disposables.push(disposable);
  return disposable;
}

function openLocks(): Locks {
  name = `lock-${++count}`;
  return disposeLater(createLocks(etcd({ servers: [server.address], prefix: "" }), { ttl: "10s" }));
}

function lockByEtcdctl(options: Partial<EtcdctlOptions> = {}): EtcdctlHolder {
  return disposeLater(startEtcdctlLock({ server, name, ttlSeconds: TTL_SECONDS, ...options }));
}

function waitForQueue(length: number): Promise<unknown> {
  return until(async () => (await readEtcdQueue(server, name)).length === length, {
    within: TIMEOUT_MS,
    what: `${length} entries of ${name}`,
  });
}

describe("etcdctl lock", () => {
  test("waits for a lock that Holdfast holds, and Holdfast waits for one that etcdctl holds", async () => {
    const locks = openLocks();
    const ours = await locks.acquire(name);
    const theirs = lockByEtcdctl();
    await waitForQueue(2);
    expect(theirs.isHeld()).toBe(false);
    await expect(locks.acquire(name, { wait: 0 })).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
    await ours.release();
    const key = await theirs.waitUntilHeld();
    expect((await readEtcdQueue(server, name)).map((entry) => entry.key)).toEqual([key]);

    const next = locks.acquire(name);
    await waitForQueue(2);
    expect(theirs.isHeld()).toBe(true);
    await theirs.release();
    await (await next).release();
    expect(await readEtcdQueue(server, name)).toEqual([]);
  });

  test("runs a command under the lock: its environment names the key, whose revision is a token like Holdfast's", async () => {
    const locks = openLocks();
    const before = await locks.acquire(name);
    await before.release();
    const output = await runUnderEtcdctlLock({ server, name }, ["sh", "-c", 'echo "$ETCD_LOCK_KEY $ETCD_LOCK_REV"']);
    const [key = "", revision = ""] = output.trim().split(" ");
    expect(key).toMatch(new RegExp(`^${name}/[0-9a-f]+$`));
    const after = await locks.acquire(name);
    expect(BigInt(revision) * 1_024n).toBeGreaterThan(before.token);
    expect(BigInt(revision) * 1_024n).toBeLessThan(after.token);
    await after.release();
  });

  test("all are granted in the order of their arrival", async () => {
    const locks = openLocks();
    const order: string[] = [];
    const first = await locks.acquire(name);
    const theirs = [lockByEtcdctl()];
    await waitForQueue(2);
    // in one process the queue would be its own: each of ours is a process of its own here
    const others = createLocks(etcd({ servers: [server.address], prefix: "" }), { ttl: "10s" });
    disposeLater(others);
    const second = others.acquire(name).then((lock) => {
      order.push("ours");
      return lock;
    });
    await waitForQueue(3);
    theirs.push(lockByEtcdctl());
    await waitForQueue(4);
    await first.release();
    await theirs[0]?.waitUntilHeld();
    expect(order).toEqual([]);
    await theirs[0]?.release();
    const lock = await second;
    expect(theirs[1]?.isHeld()).toBe(false);
    await lock.release();
    await theirs[1]?.waitUntilHeld();
  });

  test("killed while it holds or waits, it is passed over when its lease has ended", async () => {
    const locks = openLocks();
    const holder = lockByEtcdctl();
    await holder.waitUntilHeld();
    const waiter = lockByEtcdctl();
    await waitForQueue(2);
    const ours = locks.acquire(name);
    await waitForQueue(3);
    await holder.kill();
    await waiter.kill();
    const lock = await ours;
    expect(await readEtcdQueue(server, name)).toHaveLength(1);
    expect(lock.signal.aborted).toBe(false);
    await lock.release();
  });

  test("gets the lock of a Holdfast process that was killed", async () => {
    openLocks();
    const { host, port } = server.address;
    const process = await startHoldfastContender({ server: `${host}:${port}`, sessionMs: 3_000 }, "etcd");
    process.send(`open us mutex ${name}`);
    process.send("acquire us");
    await process.waitForReport("us held");
    const theirs = lockByEtcdctl();
    await waitForQueue(2);
    await process.kill();
    await theirs.waitUntilHeld();
    expect(await readEtcdQueue(server, name)).toHaveLength(1);
  });

  test("a holder whose entry is deleted by etcdctl loses the lock at once", async () => {
    const locks = openLocks();
    const lock = await locks.acquire(name);
    const [entry] = await readEtcdQueue(server, name);
    await server.runCommand(["del", entry?.key ?? ""]);
    await until(() => lock.signal.aborted, { within: 2_000, what: "the loss" });
    const theirs = lockByEtcdctl();
    await theirs.waitUntilHeld();
  });

  test("its locks are listed, and can be forced open", async () => {
    const locks = openLocks();
    const theirs = lockByEtcdctl();
    await theirs.waitUntilHeld();
    const [holder] = await locks.list(name);
    expect(holder).toMatchObject({ locks: [{ key: name }], label: "(not Holdfast)", state: "held" });
    const revision = (await readEtcdQueue(server, name))[0]?.createRevision ?? 0n;
    expect(holder?.token).toBe(revision * 1_024n);
    expect(await locks.revoke(name, holder?.token ?? 0n, { now: true })).toBe(true);
    await (await locks.acquire(name)).release();
  });
});

test("etcdctl elect: a candidate waits for Holdfast's lock of that name, and Holdfast for a leader", async () => {
  const locks = openLocks();
  const ours = await locks.acquire(name);
  const candidate = disposeLater(startEtcdctlElect({ server, name }, "them"));
  await waitForQueue(2);
  const next = locks.acquire(name);
  await ours.release();
  await candidate.waitUntilHeld();
  await waitForQueue(2);
  await candidate.release();
  await (await next).release();
});

describe.skipIf(NO_GO !== null)(`etcd's Go client${NO_GO === null ? "" : `: ${NO_GO}`}`, () => {
  type Contest = {
    readonly register: ExclusionRegister;
    readonly holdfast: ContenderProcess;
    readonly go: ContenderProcess;
  };

  async function startContest(options: RegisterOptions = {}): Promise<Contest> {
    openLocks();
    const register = disposeLater(await openExclusionRegister(options));
    const { host, port } = server.address;
    const registerPort = register.port;
    const [holdfast, go] = await Promise.all([
      startHoldfastContender({ server: `${host}:${port}`, sessionMs: TTL_SECONDS * 1_000, registerPort }, "etcd"),
      startEtcdContender({ server, ttlSeconds: TTL_SECONDS, registerPort }),
    ]);
    disposables.push(holdfast, go);
    return { register, holdfast, go };
  }

  /** Who enters has the oldest entry, and a younger one than the holder before. */
  function grantOrder(): () => Promise<string | null> {
    let last = 0n;
    return async () => {
      const [first] = await readEtcdQueue(server, name);
      const revision = first?.createRevision ?? 0n;
      const before = last;
      last = revision;
      return revision > before ? null : `entered with revision ${revision} after ${before}`;
    };
  }

  test("4 contenders of each, mutexes and elections: no two holders overlap, all in order of arrival, none starved", async () => {
    const { register, holdfast, go } = await startContest({ onEnter: grantOrder() });
    const ours = ["ours-1", "ours-2", "ours-3", "ours-4"];
    const theirs = ["theirs-1", "theirs-2", "theirs-3", "theirs-4"];
    for (const us of ours) holdfast.send(`open ${us} mutex ${name}`);
    for (const [index, them] of theirs.entries()) go.send(`open ${them} ${index < 2 ? "mutex" : "election"} ${name}`);
    for (const us of ours) holdfast.send(`cycles ${us} ${CYCLES} 1`);
    for (const them of theirs) go.send(`cycles ${them} ${CYCLES} 1`);
    // a hand-off of etcd's client takes up to 0.1 s
    const within = 300 * 8 * CYCLES;
    await Promise.all([
      ...ours.map((us) => holdfast.waitForReport(`${us} done`, 1, within)),
      ...theirs.map((them) => go.waitForReport(`${them} done`, 1, within)),
    ]);
    expect(register.faults).toEqual([]);
    expect(register.entries).toHaveLength(8 * CYCLES);
    const { entries } = register;
    const turns = entries.filter((entrant, index) => index > 0 && entrant[0] !== entries[index - 1]?.[0]).length;
    expect(turns, "ours and theirs had met").toBeGreaterThan(CYCLES);
    console.log(`figure: ${entries.length} grants, ${turns} of them from one kind to the other`);
  }, 120_000);

  test("when either is killed, holding and waiting, the other goes on", async () => {
    for (const victim of ["holdfast", "go"] as const) {
      const contest = await startContest();
      const { register } = contest;
      const [dying, living] = victim === "go" ? [contest.go, contest.holdfast] : [contest.holdfast, contest.go];
      for (const [kind, contenders] of [
        ["dying", dying],
        ["living", living],
      ] as const)
        for (const number of [1, 2]) {
          contenders.send(`open ${kind}-${number} mutex ${name}`);
          contenders.send(`cycles ${kind}-${number} 1000 5`);
        }
      await until(() => new Set(register.entries).size === 4, { within: TIMEOUT_MS, what: "a turn for each" });
      await until(() => [...register.holders].some((holder) => holder.startsWith("dying")), {
        within: TIMEOUT_MS,
        what: "a holder to kill",
      });
      await dying.kill();
      const before = register.entries.length;
      await until(() => register.entries.length >= before + 10, { within: TIMEOUT_MS, what: "the others to go on" });
      expect(register.faults).toEqual([]);
      expect(new Set(register.entries.slice(before))).toEqual(new Set(["living-1", "living-2"]));
      await living.kill();
    }
  }, 60_000);
});

test("with `/` in a key the recipe of etcdctl takes the entries of `a/b` for entries of `a`; `compatible: false` does not", async () => {
  const locks = openLocks();
  const below = await locks.acquire(`${name}/below`);
  // etcdctl sees an older entry below its name
  const theirs = lockByEtcdctl();
  await waitForQueue(1);
  expect(theirs.isHeld()).toBe(false);
  await below.release();
  await theirs.waitUntilHeld();
  await theirs.release();

  const escaped = disposeLater(
    createLocks(etcd({ servers: [server.address], prefix: "", compatible: false }), { ttl: "10s" }),
  );
  const lock = await escaped.acquire(`${name}/below`);
  const next = lockByEtcdctl();
  await next.waitUntilHeld();
  await lock.release();
});
