/**
 * Locks of the journal that are released or revoked while the disk of the server is full: what was answered as done is not held
 * again after the server has died or stopped, and all else was told.
 */

import { join } from "node:path";
import { expect } from "vitest";
import { until } from "../../src/testing/until.ts";
import { randomId } from "../../src/util/ids.ts";
import { mountNamespaceUnavailableReason } from "../support/processes/mount-namespace.ts";
import { test } from "../support/processes/process-harness.ts";
import { startServerProcess } from "../support/processes/server-process.ts";
import { mountSmallDisk } from "../support/processes/small-disk.ts";
import { RawClient } from "../support/raw-client.ts";

const HOUR_MS = 3_600_000;
const COUNT = 80;
const skip = mountNamespaceUnavailableReason === null ? "" : `: ${mountNamespaceUnavailableReason}, skipped`;

interface HeldLock {
  readonly id: string;
  readonly key: string;
  readonly token: unknown;
}

test.skipIf(skip !== "").for(["kill", "stop"] as const)(
  `what was released and revoked on a full disk is not held again after a %s of the server${skip}`,
  async (end, { harness }) => {
    const disk = await mountSmallDisk(harness, "disk", 1);
    const state = join(disk.path, "state");
    const server = await startServerProcess(harness, { commandPrefix: disk.commandPrefix, state });
    const client = await RawClient.open(server.rawAddress);
    const acquireAll = (name: string): Promise<HeldLock[]> =>
      Promise.all(Array.from({ length: COUNT }, (_, index) => acquire(client, `${name}${index}`)));
    const locks = await acquireAll("released");
    const [removed, revoked, kept] = [
      await acquireAll("removed"),
      await acquireAll("revoked"),
      await acquireAll("kept"),
    ];
    disk.fill();
    // not even what is left of the last block
    const refused = await until(() => findRefusedKey(client), { within: 10_000, what: "the full disk" });

    const released = await keepDone(locks, ({ id }) => client.release(id));
    const ended = await keepDone(removed, (lock) => revoke(client, lock, true));
    const told = await keepDone(revoked, (lock) => revoke(client, lock, false));
    // there is room to drop each claim, but not for a longer record of a revocation
    expect([released.length, ended.length]).toEqual([COUNT, COUNT]);
    expect(told.length).toBeLessThan(COUNT);
    client.end();
    await server[end]();
    disk.clear();
    await server.restart();

    // the only client reports what it holds, which ends the recovery
    const contender = await RawClient.open(server.rawAddress, { session: client.session });
    await contender.call("reclaim", [], true);
    const tryAcquire = async (key: string): Promise<unknown> =>
      (await contender.claim(randomId(), key, 30_000, { wait: false }))[0];
    expect(await tryAcquire("free")).toBe("held");
    for (const { key } of [...released, ...ended]) expect([key, await tryAcquire(key)]).toEqual([key, "held"]);
    expect(await tryAcquire(refused)).toBe("held");
    for (const { key } of kept) expect([key, await tryAcquire(key)]).toEqual([key, "none"]);
    for (const { id } of told) expect(await contender.call("renew", [id])).toEqual([["none", "revoked"]]);
    contender.end();
  },
);

async function acquire(client: RawClient, key: string): Promise<HeldLock> {
  const id = randomId();
  const [state, token] = await client.claim(id, key, HOUR_MS);
  if (state !== "held") throw new Error(`${key} is ${state}`);
  return { id, key, token };
}

/** Acquires a lock of an hour; the key if that was refused because the disk is full. */
async function findRefusedKey(client: RawClient): Promise<string | null> {
  const key = `${"x".repeat(200)}${randomId()}`;
  try {
    await acquire(client, key);
    return null;
  } catch (error) {
    expect(String(error)).toMatch(/DISK/);
    return key;
  }
}

async function revoke(client: RawClient, { key, token }: HeldLock, now: boolean): Promise<boolean> {
  return (await client.call("revoke", [[key, String(token), now]]))[0] === 1;
}

/** Those for which the call was answered as done; the others must have failed with DISK. */
async function keepDone(locks: readonly HeldLock[], call: (lock: HeldLock) => Promise<boolean>): Promise<HeldLock[]> {
  const results = await Promise.allSettled(locks.map(call));
  for (const result of results) if (result.status === "rejected") expect(String(result.reason)).toMatch(/DISK/);
  return locks.filter((_, index) => {
    const result = results[index];
    return result?.status === "fulfilled" && result.value;
  });
}
