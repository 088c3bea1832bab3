/** Clients at work on a majority in trouble, and who checks them: by what they believe themselves, and nothing else. */

import assert from "node:assert/strict";
// else loaded when first used, while simulated time goes on
import "../../src/client/attach.ts";
import "../../src/client/detach.ts";
import "../../src/client/list.ts";
import { Client } from "../../src/client/client.ts";
import type { Lock, LockHandle } from "../../src/client/lock.ts";
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

  /** It was detached, and taken up again: nobody was granted meanwhile. */
  resumed(holding: Holding, token: bigint): void {
    assert.equal(holding.lock.token, token, `${holding.who}: the token of a lock that was taken up again`);
    assert.equal(this.#given.get(holding.key), token, `${holding.who}: granted while the lock was detached`);
    this.#given.set(holding.key, token - 1n);
    this.entered(holding);
  }
}

interface Site {
  locks: Locks;
  readonly cut: Set<number>;
  /** Another client takes its place. */
  replace(): Promise<void>;
}

/** What users are told in trouble. */
const TROUBLES = new Set(["LOCK_TIMEOUT", "DRIVER_FAILED", "DRIVER_FATAL", "CLOSED", "LOCK_LOST", "UNSUPPORTED"]);

function orNull(error: { readonly code?: string }): null {
  if (TROUBLES.has(error.code ?? "")) return null;
  throw error;
}

/** Runs one seed. @throws Error naming the seed and what went wrong; gives how many grants there were */
export async function play(seed: number): Promise<number> {
  const world = worldOf(seed);
  const watch = new Watch();
  const sites = Array.from({ length: 2 + world.random.int(3) }, () => clientOf(world));
  let failure: unknown = null;
  const closings: Promise<void>[] = [];
  const actors = sites.flatMap((site, index) =>
    Array.from({ length: 1 + world.random.int(2) }, (_, number) =>
      act(world, watch, site, sites, `${index}.${number}`),
    ),
  );
  const keeper = keep(world, watch, sites);
  let finished = false;
  const done = Promise.all([...actors, keeper]).then(
    () => {
      finished = true;
    },
    (error: unknown) => {
      failure ??= error;
    },
  );
  void done;
  try {
    await trouble(world, sites, closings, () => failure);
    world.isQuiet = true;
    for (let waited = 0; !finished && failure === null; waited += 100) {
      assert.ok(waited < 20 * world.ttlMs, "who waits is served when the trouble is over");
      await world.clock.pass(100);
    }
    if (failure !== null) throw failure;
    await nothingLeft(world, sites, closings);
  } catch (error) {
    throw new Error(`seed ${seed} (${world.sites.length} members): ${String(error)}`, { cause: error });
  }
  return watch.grants;
}

function clientOf(world: World): Site {
  const cut = new Set<number>();
  const clock = world.drifted();
  const random = world.random.fork();
  const handoffs = random.chance(0.5) ? 1 : 8;
  const settings = settingsOf({ clock, ttl: world.ttlMs, handoffs });
  const open = (): Locks => {
    const links = world.sites.map((site, index) => linkTo(world, site, () => cut.has(index)));
    const driver = quorum(links, { clock, random: () => random.next() });
    return locksOf(new Client(driver, settings, () => random.next()));
  };
  const client: Site = {
    locks: open(),
    cut,
    replace() {
      const { locks } = client;
      client.locks = open();
      return locks.close();
    },
  };
  return client;
}

async function act(world: World, watch: Watch, site: Site, sites: readonly Site[], who: string): Promise<void> {
  const random = world.random.fork();
  while (!world.isQuiet) {
    await world.pause(random.next() * 300);
    const key = random.pick(KEYS);
    const writes = random.chance(0.8);
    const { locks } = site;
    if (random.chance(0.05)) await listOnce(locks);
    const target = writes ? locks.mutex(key) : locks.rw(key).read;
    const wait = random.chance(0.2) ? 0 : random.int(8_000);
    const lock = await target.acquire({ wait }).catch(orNull);
    if (lock === null) continue;
    const holding = { key, lock, writes, who };
    watch.entered(holding);
    await world.pause(random.next() * (random.chance(0.1) ? 2 * world.ttlMs : 200));
    watch.left(holding);
    if (writes && random.chance(0.15)) await travel(world, watch, holding, random.pick(sites));
    else await release(world, lock);
  }
}

async function release(world: World, lock: Lock): Promise<void> {
  for (const { tracked } of (lock as LockHandle).tenures) world.gone.add(tracked.claim.id);
  await lock.release();
}

/** Holds a key through all of it, and when all is well again sees that the lock is whole: in the list, and when it travels. */
async function keep(world: World, watch: Watch, sites: readonly Site[]): Promise<void> {
  const [site, to] = [sites[0] as Site, sites[1] as Site];
  const key = "kept";
  while (!world.isQuiet) {
    await world.pause(100);
    const lock = await site.locks.acquire(key, { wait: 2_000 }).catch(orNull);
    if (lock === null) continue;
    const holding = { key, lock, writes: true, who: "keeper" };
    watch.entered(holding);
    while (!world.isQuiet && !lock.signal.aborted) await world.pause(100);
    // what was lost is made again by renewals; what ran out, when it is forgotten
    await world.pause(3 * world.ttlMs);
    watch.left(holding);
    if (lock.remainingMs <= 0) {
      await lock.release();
      continue;
    }
    const { token } = lock;
    const listed = await to.locks.list(key);
    assert.deepEqual(
      listed.map(({ answer }) => (answer.state === "held" ? answer.token : answer.state)),
      [token],
      "a kept lock is listed as held",
    );
    const again = await to.locks.attach(await lock.detach());
    watch.resumed({ ...holding, lock: again }, token);
    watch.left(holding);
    await again.release();
    return;
  }
}

/** The lock goes to another client, which gives it back, or forgets it. */
async function travel(world: World, watch: Watch, { key, lock, who }: Holding, to: Site): Promise<void> {
  const { token } = lock;
  const random = world.random.fork();
  const reference = await lock.detach().catch(orNull);
  if (reference === null) return void (await lock.release());
  await world.pause(random.next() * 0.5 * world.ttlMs);
  const again = await to.locks.attach(reference).catch(orNull);
  if (again === null) return;
  const holding = { key, lock: again, writes: true, who: `${who}, taken up` };
  watch.resumed(holding, token);
  await world.pause(random.next() * world.ttlMs);
  watch.left(holding);
  await release(world, again);
}

async function listOnce(locks: Locks): Promise<void> {
  const listed = (await locks.list("").catch(orNull)) ?? [];
  assert.equal(new Set(listed.map(({ tag }) => tag)).size, listed.length, "a claim is listed twice");
}

/** A member falls silent, refuses, has its clock set or comes back empty (after a lease, as it must); a client is cut off, or replaced. */
async function trouble(
  world: World,
  sites: readonly Site[],
  closings: Promise<void>[],
  failed: () => unknown,
): Promise<void> {
  const { random, clock, ttlMs } = world;
  const end = clock.now() + TROUBLE_MS;
  const seldom = random.chance(0.5) ? 800 : 4_000;
  while (clock.now() < end && failed() === null) {
    await clock.pass(random.next() * seldom);
    const index = random.int(world.sites.length);
    const site = world.sites[index];
    if (site === undefined || site.away !== null) continue;
    const roll = random.next();
    if (roll < 0.1) closings.push(random.pick(sites).replace());
    else if (roll < 0.4) {
      site.away = random.pick(["silent", "refusing", "fatal"] as const);
      after(world, random.next() * 3_000, () => {
        site.away = null;
      });
    } else if (roll < 0.6 && !world.forgets) site.setWall((random.next() - 0.5) * 7_200_000);
    else if (roll < 0.6) {
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
async function nothingLeft(world: World, sites: readonly Site[], closings: readonly Promise<void>[]): Promise<void> {
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
  const closed = Promise.all([...closings, ...sites.map((site) => site.locks.close())]);
  await clock.pass(6_000);
  await closed;
  await clock.pass(ttlMs);
  assert.deepEqual(world.strays, [], "a member was left with places of claims that it had been told to release");
  for (const { store } of world.sites) {
    store.table.advance(store.clock.now(), 0);
    assert.equal(store.table.entries.size, 0, "a member still has claims");
  }
}
