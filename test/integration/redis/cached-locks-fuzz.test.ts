/**
 * Several clients that cache locks use the same keys through a network that breaks: connections are reset, answers lost after
 * their commands were executed, subscribers killed, locks revoked, detached and attached, maxHold exceeded. While that goes on no two
 * holders of a key may overlap, and every token of a key is higher than those before it; afterwards everything is released.
 */

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { expect, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Lock, Locks } from "../../../src/index.ts";
import { createLocks, LockLostError, LockTimeoutError, StoreError, UnsupportedError } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import type { TcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import type { SeededRandom } from "../../support/seeded-random.ts";
import { seededRandom } from "../../support/seeded-random.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import { findRedisViolations } from "../../support/stores/redis-inspector.ts";

const isLong = process.env.HOLDFAST_LONG === "1";
const FIRST_SEED = Number(process.env.HOLDFAST_SEED ?? 1);
const SEEDS = process.env.HOLDFAST_SEED !== undefined ? 1 : isLong ? 100 : 2;
// real proxies and leases: a seed does not repeat their timing, and a failure of a normal run could not be reproduced
const testInLongRuns = test.skipIf(!isLong && process.env.HOLDFAST_SEED === undefined);
const CLIENTS = 3;
const USERS = 4;
const RUN_MS = isLong ? 6_000 : 2_000;
const TTL_MS = 1_200;
const KEYS = ["a", "b", "c"] as const;

interface Holder {
  readonly lock: Lock;
  readonly client: number;
  readonly isShared: boolean;
}

class FuzzedClients {
  readonly random: SeededRandom;
  readonly prefix: string;
  readonly holders = new Map<string, Set<Holder>>();
  readonly tokens = new Map<string, bigint>();
  readonly proxies: TcpProxy[] = [];
  readonly clients: Locks[] = [];
  readonly log: string[] = [];
  readonly counts = { uses: 0, losses: 0, detached: 0, revoked: 0, faults: 0, failures: 0 };
  isOver = false;

  constructor(seed: number) {
    this.random = seededRandom(seed);
    this.prefix = `cached-fuzz-${seed}`;
  }

  async open(port: number): Promise<void> {
    for (let index = 0; index < CLIENTS; index++) {
      const proxy = await tcpProxy({ host: "127.0.0.1", port });
      this.proxies.push(proxy);
      const { port: proxyPort } = proxy.address as { readonly port: number };
      const connectRedis = (): Redis =>
        new Redis(proxyPort, "127.0.0.1", { retryStrategy: () => 20, maxRetriesPerRequest: 3 }).on(
          "error",
          () => undefined,
        );
      const driver = redis(connectRedis, { prefix: this.prefix, commandTimeoutMs: 500 });
      // one of them gives an idle lock back only when it is recalled
      this.clients.push(createLocks(driver, { ttl: TTL_MS, cache: index === 0 ? 600_000 : 400 }));
    }
  }

  /** One user: acquires, uses, releases, again and again. */
  async use(client: number, random: SeededRandom): Promise<void> {
    const locks = this.clients[client] as Locks;
    while (!this.isOver) {
      const keys = random.chance(0.12) ? KEYS.filter(() => random.chance(0.6)) : [];
      // mostly the same one, so that it is cached
      const key = random.chance(0.7) ? (KEYS[client] as string) : random.pick(KEYS);
      const isShared = keys.length === 0 && random.chance(0.15);
      const target = isShared ? locks.rw(key).read : keys.length > 0 ? locks.all(...keys) : locks.mutex(key);
      const isPatient = random.chance(0.9);
      const options = {
        wait: isPatient ? 400 + random.int(3_000) : 0,
        ...(random.chance(0.1) && { maxHold: 30 }),
        ...(random.chance(0.1) && { signal: AbortSignal.timeout(random.int(100)) }),
      };
      try {
        if (random.chance(0.1) && !isShared) {
          await target.using(options, async (lock) => {
            await this.#hold(lock, client, isShared, random);
            await locks
              .mutex(key)
              .tryAcquire()
              .then((inner) => inner?.release()); // joins it, or asks for another key
            this.#leave(lock);
          });
        } else {
          const lock = await target.acquire(options);
          await this.#hold(lock, client, isShared, random);
          if (random.chance(0.05)) await this.#transfer(lock, random);
          else if (random.chance(0.03)) await Promise.allSettled([lock.detach(), this.#release(lock)]);
          else await this.#release(lock);
        }
      } catch (error) {
        if (error instanceof assert.AssertionError) throw error;
        if (error instanceof LockTimeoutError || error instanceof LockLostError || error instanceof UnsupportedError)
          this.counts.losses++;
        else if (error instanceof StoreError || (error as Error).name === "TimeoutError") this.counts.failures++;
        else throw error;
      }
      if (random.chance(0.5)) await sleep(random.int(8));
      if (random.chance(0.02)) await sleep(500); // longer than an idle lock is kept
    }
  }

  async #hold(lock: Lock, client: number, isShared: boolean, random: SeededRandom): Promise<void> {
    this.counts.uses++;
    const holder: Holder = { lock, client, isShared };
    for (const grant of lock.grants) {
      const others = this.holders.get(grant.key) ?? new Set();
      this.holders.set(grant.key, others);
      for (const other of others) {
        if (other.lock.remainingMs === 0 || (isShared && other.isShared)) continue;
        assert.fail(
          `client ${client} holds ${grant.key} by ${grant.token} beside client ${other.client}, by ${other.lock.token}`,
        );
      }
      const last = this.tokens.get(grant.key) ?? 0n;
      // readers side by side have no order
      if (!isShared) assert.ok(grant.token > last, `client ${client} has ${grant.token} of ${grant.key} after ${last}`);
      if (grant.token > last) this.tokens.set(grant.key, grant.token);
      others.add(holder);
    }
    if (random.chance(0.7)) await sleep(random.chance(0.1) ? 40 : random.int(4));
  }

  #leave(lock: Lock): void {
    for (const others of this.holders.values())
      for (const other of others) if (other.lock === lock) others.delete(other);
  }

  async #release(lock: Lock): Promise<void> {
    this.#leave(lock);
    await lock.release();
  }

  async #transfer(lock: Lock, random: SeededRandom): Promise<void> {
    const isShared = [...this.holders.values()].some((all) =>
      [...all].some((one) => one.lock === lock && one.isShared),
    );
    let reference: string;
    try {
      reference = await lock.detach(random.chance(0.5) ? { ttl: 300 } : {});
    } catch (error) {
      await this.#release(lock); // a detach that fails may leave it held
      throw error;
    } finally {
      this.#leave(lock);
    }
    this.counts.detached++;
    const client = random.int(CLIENTS);
    const attached = await (this.clients[client] as Locks).attach(reference);
    const holder: Holder = { lock: attached, client, isShared };
    for (const key of attached.keys) this.holders.get(key)?.add(holder);
    await sleep(random.int(5));
    await this.#release(attached);
  }

  /** Breaks the network and revokes locks. */
  async disturb(admin: Redis, random: SeededRandom): Promise<void> {
    while (!this.isOver) {
      await sleep(20 + random.int(80));
      const proxy = random.pick(this.proxies);
      this.counts.faults++;
      const draw = random.next();
      if (draw < 0.25) proxy.reset();
      else if (draw < 0.55) proxy.toClient.cutAfter(1 + random.int(400));
      else if (draw < 0.65) proxy.toTarget.cutAfter(1 + random.int(400));
      else if (draw < 0.8) await admin.call("CLIENT", "KILL", "TYPE", "pubsub");
      else {
        const views = await (random.pick(this.clients) as Locks).list().catch(() => []);
        const held = views.filter(({ state }) => state === "held");
        if (held.length === 0) continue;
        const { token, locks } = random.pick(held);
        const revoking = random.pick(this.clients) as Locks;
        // without `now`: the holder goes on until it has released
        const isRevoked = token !== null && revoking.revoke(locks[0].key, token).catch(() => false);
        if (await isRevoked) this.counts.revoked++;
      }
    }
  }
}

withRedis((server) => {
  testInLongRuns.each(Array.from({ length: SEEDS }, (_, index) => FIRST_SEED + index))(
    "seed %i",
    { timeout: 60_000 },
    async (seed) => {
      const run = new FuzzedClients(seed);
      const admin = new Redis(server().port, "127.0.0.1");
      await run.open(server().port);
      const failures: unknown[] = [];
      const note = (error: unknown): void => {
        failures.push(error);
        run.isOver = true;
      };
      const users = Array.from({ length: CLIENTS * USERS }, (_, index) =>
        run.use(index % CLIENTS, run.random.fork()).catch(note),
      );
      const faults = run.disturb(admin, run.random.fork()).catch(note);
      await Promise.race([sleep(RUN_MS), faults]);
      run.isOver = true;
      await Promise.all([...users, faults]);
      expect(failures).toEqual([]);
      // after the last fault a cached lock is no obstacle: every client gets every key
      for (const locks of run.clients) await (await locks.all(...KEYS).acquire({ wait: 10_000 })).release();
      await Promise.all(run.clients.map((locks) => locks.close()));
      for (const proxy of run.proxies) await proxy.close();
      await until(async () => (await findRedisViolations(admin, run.prefix)).length === 0, {
        within: 5_000,
        what: "a consistent store",
      });
      const liveFields = async (): Promise<readonly string[]> => {
        const hashes = await admin.keys(`${run.prefix}:3:*:h`);
        const fields = await Promise.all(hashes.map((hash) => admin.hgetall(hash)));
        return fields.flatMap((one) =>
          Object.entries(one).flatMap(([field, value]) =>
            /^[km]:|^c:/.test(field) && !value.startsWith("x ") ? [field] : [],
          ),
        );
      };
      expect(await admin.keys(`${run.prefix}:3:*:[aw]:*`), "queues at the end").toEqual([]);
      expect(await liveFields(), "claims at the end").toEqual([]);
      admin.disconnect();
      if (isLong || SEEDS === 1) console.log(`figure: seed ${seed}: ${JSON.stringify(run.counts)}`);
      expect(run.counts.uses).toBeGreaterThan(50);
    },
  );
});
