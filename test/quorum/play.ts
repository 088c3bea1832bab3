/** Clients at work on a majority in trouble, and who checks them: by what they believe themselves, and nothing else. */

import assert from "node:assert/strict";
import { Client } from "../../src/client/client.ts";
import type { Lock } from "../../src/client/lock.ts";
import type { Locks } from "../../src/client/locks.ts";
import { locksOf } from "../../src/client/locks.ts";
import { settingsOf } from "../../src/client/options.ts";
import { quorum } from "../../src/drivers/quorum/driver.ts";
import type { World } from "./world.ts";
import { linkTo, worldOf } from "./world.ts";

const TROUBLE_MS = 12_000;
const KEYS = ["a", "b"];

interface Holding {
  readonly key: string;
  readonly lock: Lock;
  readonly writes: boolean;
  readonly who: string;
}

/** Nobody who excludes another one holds while that one believes to hold; tokens rise. */
class Watch {
  readonly #inside = new Set<Holding>();
  readonly #given = new Map<string, bigint>();
  readonly #written = new Map<string, bigint>();
  grants = 0;

  entered(holding: Holding): void {
    const { key, lock, writes, who } = holding;
    for (const other of this.#inside) {
      if (other.key !== key || (!writes && !other.writes) || other.lock.remainingMs <= 0) continue;
      assert.fail(`${who} and ${other.who} hold "${key}" at once (tokens ${lock.token}, ${other.lock.token})`);
    }
    // readers may be told of their grants in another order than they were made in
    const before = (writes ? this.#given : this.#written).get(key) ?? 0n;
    assert.ok(lock.token > before, `${who}: token ${lock.token} after ${before}`);
    this.#given.set(key, lock.token > (this.#given.get(key) ?? 0n) ? lock.token : (this.#given.get(key) as bigint));
    if (writes) this.#written.set(key, lock.token);
    this.grants++;
    this.#inside.add(holding);
  }

  left(holding: Holding): void {
    this.#inside.delete(holding);
  }
}

interface Site {
  readonly locks: Locks;
  readonly cut: Set<number>;
}

/** Runs one seed. @throws Error naming the seed and what went wrong; gives how many grants there were */
export async function play(seed: number): Promise<number> {
  const world = worldOf(seed);
  const watch = new Watch();
  const sites = Array.from({ length: 2 + world.random.int(3) }, () => clientOf(world));
  let failure: unknown = null;
  const actors = sites.flatMap(({ locks }, index) =>
    Array.from({ length: 1 + world.random.int(2) }, (_, number) => act(world, watch, locks, `${index}.${number}`)),
  );
  let finished = false;
  const done = Promise.all(actors).then(
    () => {
      finished = true;
    },
    (error: unknown) => {
      failure ??= error;
    },
  );
  void done;
  try {
    await trouble(world, sites, () => failure);
    world.isQuiet = true;
    for (let waited = 0; !finished && failure === null; waited += 100) {
      assert.ok(waited < 20 * world.ttlMs, "who waits is served when the trouble is over");
      await world.clock.pass(100);
    }
    if (failure !== null) throw failure;
    await nothingLeft(world, sites);
  } catch (error) {
    throw new Error(`seed ${seed} (${world.sites.length} members): ${String(error)}`, { cause: error });
  }
  return watch.grants;
}

function clientOf(world: World): Site {
  const cut = new Set<number>();
  const clock = world.drifted();
  const random = world.random.fork();
  const links = world.sites.map((site, index) => linkTo(world, site, () => cut.has(index)));
  const driver = quorum(links, { clock, random: () => random.next() });
  const handoffs = random.chance(0.5) ? 1 : 8;
  const settings = settingsOf({ clock, ttl: world.ttlMs, handoffs });
  return { locks: locksOf(new Client(driver, settings, () => random.next())), cut };
}

async function act(world: World, watch: Watch, locks: Locks, who: string): Promise<void> {
  const random = world.random.fork();
  while (!world.isQuiet) {
    await world.pause(random.next() * 300);
    const key = random.pick(KEYS);
    const writes = random.chance(0.8);
    const target = writes ? locks.mutex(key) : locks.rw(key).read;
    const wait = random.chance(0.2) ? 0 : random.int(8_000);
    const lock = await target.acquire({ wait }).catch((error: { code?: string }) => {
      if (error.code === "LOCK_TIMEOUT" || error.code === "DRIVER_FAILED") return null;
      throw error;
    });
    if (lock === null) continue;
    const holding = { key, lock, writes, who };
    watch.entered(holding);
    await world.pause(random.next() * (random.chance(0.1) ? 2 * world.ttlMs : 200));
    watch.left(holding);
    await lock.release();
  }
}

/** A member falls silent, refuses, or comes back empty (after a lease's length, as it must); a client is cut off. */
async function trouble(world: World, sites: readonly Site[], failed: () => unknown): Promise<void> {
  const { random, clock, ttlMs } = world;
  const end = clock.now() + TROUBLE_MS;
  const seldom = random.chance(0.5) ? 800 : 4_000;
  while (clock.now() < end && failed() === null) {
    await clock.pass(random.next() * seldom);
    const index = random.int(world.sites.length);
    const site = world.sites[index];
    if (site === undefined || site.away !== null) continue;
    const roll = random.next();
    if (roll < 0.4) {
      site.away = random.chance(0.5) ? "silent" : "refusing";
      after(world, random.next() * 3_000, () => {
        site.away = null;
      });
    } else if (roll < 0.6) {
      site.away = "refusing";
      after(world, 1.02 * ttlMs, () => {
        site.store = site.fresh();
        site.life++;
        site.away = null;
      });
    } else {
      const { cut } = random.pick(sites);
      cut.add(index);
      after(world, random.next() * 2_500, () => cut.delete(index));
    }
  }
  await clock.pass(3_100);
}

function after(world: World, ms: number, run: () => void): void {
  void world.pause(ms).then(run);
}

/** A key is free for whoever asks now, and when leases are over no member knows anything of anybody. */
async function nothingLeft(world: World, sites: readonly Site[]): Promise<void> {
  const { clock, ttlMs } = world;
  const { locks } = sites[0] as Site;
  for (const key of KEYS) {
    const asked = locks.acquire(key, { wait: 3 * ttlMs });
    let lock: Lock | undefined;
    asked.then(
      (granted) => {
        lock = granted;
      },
      () => undefined,
    );
    await clock.pass(3 * ttlMs + 3_000);
    assert.ok(lock !== undefined, `"${key}" is free`);
    const released = lock.release();
    await clock.pass(1_000);
    await released;
  }
  const closed = Promise.all(sites.map((site) => site.locks.close()));
  await clock.pass(6_000);
  await closed;
  await clock.pass(ttlMs);
  for (const { store } of world.sites) {
    store.table.advance(store.clock.now(), 0);
    assert.equal(store.table.entries.size, 0, "a member still has claims");
  }
}
