/**
 * using(), and what is asked for again inside: it joins what the flow holds, at once and with the same token, and what
 * is held ends with its last handle, whichever that is.
 */

import { ClosedError, DeadlockError, DriverError, LockLostError, LockTimeoutError } from "../../src/errors.ts";
import type { Lock } from "../../src/index.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import type { Actor } from "./actor.ts";
import type { Holding } from "./watch.ts";
import type { Wanted } from "./wish.ts";
import { mutex, reader } from "./wish.ts";

/** What happens inside. */
type Inside = (actor: Actor, holding: Holding, random: SeededRandom) => Promise<void>;

/** Holds the first key by using(). */
export async function reenter(actor: Actor, random: SeededRandom): Promise<void> {
  const { site, stage } = actor;
  const { keys, ttlMs } = stage.plan;
  const { locks, machine } = site;
  const key = keys[0] as string;
  const reads = random.chance(0.3);
  const { lockable, holds } = reads ? reader(locks, key) : mutex(locks, key);
  const lease = actor.lease();
  const began = actor.begin("uses", holds, "", lease);
  const inside = random.pick<Inside>([
    joins,
    joins,
    keepsOn,
    (own, holding, chance) => (reads ? upgrades(own, holding) : usesAgain(own, holding, chance)),
    alsoTheLast,
  ]);
  let leave: ((was: boolean) => void) | null = null;
  let was = true;
  try {
    await lockable.using({ ttl: lease, wait: ttlMs * 3 }, async (lock) => {
      const holding = actor.holding(lock, holds, began) as Holding;
      let kept = false;
      try {
        await actor.pass(random.next() * ttlMs * 0.2);
        must(actor, lock.remainingMs === 0 || locks.holds(key), "holds() is false inside");
        await inside(actor, holding, random);
      } catch (error) {
        // what was lost meanwhile cannot be joined
        if (!(error instanceof LockLostError) || lock.remainingMs > 0) throw error;
        machine.note(`${actor.name}: ${error.message}`);
      } finally {
        kept = keeping.has(holding);
        if (kept) stage.watch.ended(holding);
        else leave = actor.leaving(holding);
      }
    });
  } catch (error) {
    const expected =
      error instanceof LockLostError ||
      error instanceof LockTimeoutError ||
      error instanceof DriverError ||
      error instanceof ClosedError;
    if (!expected) throw error;
    machine.note(`${actor.name}: ${error.message}`);
    was = false;
  }
  must(actor, !locks.holds(key), "holds() is true outside");
  (leave as ((was: boolean) => void) | null)?.(was);
}

/** Holdings that go on with another handle when their first one is released. */
const keeping = new WeakSet<Holding>();

/** Asks again for what it holds. */
async function again(actor: Actor, { lockable }: Wanted, { lock, holds }: Holding): Promise<Lock> {
  const { machine } = actor.site;
  const at = machine.now;
  const joined = await lockable.acquire({ wait: 0 });
  must(actor, machine.now === at, "a request that joins had to wait");
  for (const { key } of holds) must(actor, joined.tokenOf(key) === lock.tokenOf(key), "joined with another token");
  return joined;
}

const joins: Inside = async (actor, holding, random) => {
  const { locks } = actor.site;
  const key = (holding.holds[0] as { readonly key: string }).key;
  const same = holding.holds[0]?.permits === 1 ? reader(locks, key) : mutex(locks, key);
  const joined = await again(actor, same, holding);
  await actor.pass(random.next() * actor.stage.plan.ttlMs * 0.3);
  const believed = holding.lock.remainingMs > 0;
  const was = await joined.release();
  must(
    actor,
    !believed || was || actor.site.closing,
    "release() of a joined lock said false while the outer one stands",
  );
};

/** The joined lock outlives the body: it is held until that is released, too. */
const keepsOn: Inside = async (actor, holding, random) => {
  const { locks, machine } = actor.site;
  const key = (holding.holds[0] as { readonly key: string }).key;
  const same = holding.holds[0]?.permits === 1 ? reader(locks, key) : mutex(locks, key);
  const lock = await again(actor, same, holding);
  const kept: Holding = { ...holding, name: `${holding.name}+`, lock };
  keeping.add(holding);
  machine.note(`${actor.name} keeps ${key} beyond the body`);
  void actor.busy(async () => {
    // after the body's end, which comes in this turn
    await actor.pass(0);
    actor.stage.watch.resumed(kept);
    await actor.pass(random.next() * actor.stage.plan.ttlMs * 0.5);
    await actor.release(kept);
  });
};

/** Inside reading, writing could only wait for itself. */
async function upgrades(actor: Actor, { holds }: Holding): Promise<void> {
  const { locks } = actor.site;
  try {
    await locks.mutex((holds[0] as { readonly key: string }).key).acquire();
    must(actor, false, "a reader's flow was granted the writer's lock");
  } catch (error) {
    if (!(error instanceof DeadlockError || error instanceof ClosedError)) throw error;
  }
}

/** Reading inside writing, by using() again. */
const usesAgain: Inside = async (actor, { lock, holds }, random) => {
  const { locks } = actor.site;
  const key = (holds[0] as { readonly key: string }).key;
  await locks.rw(key).read.using(async (inner) => {
    must(actor, inner.tokenOf(key) === lock.tokenOf(key), "joined with another token");
    await actor.pass(random.next() * actor.stage.plan.ttlMs * 0.3);
  });
};

/** Both keys together: one is joined, the other claimed. */
const alsoTheLast: Inside = async (actor, { holds }, random) => {
  const { locks } = actor.site;
  const { keys, ttlMs } = actor.stage.plan;
  const [first, last] = [keys[0], keys.at(-1)] as [string, string];
  if (first === last || holds[0]?.permits === 1) return;
  const { lockable, holds: rest } = mutex(locks, last);
  const began = actor.begin("also asks for", rest, "", ttlMs);
  try {
    const lock = await locks.all(first, lockable).acquire({ wait: random.pick([0, ttlMs, ttlMs * 3]) });
    const holding = actor.holding(lock, rest, began) as Holding;
    await actor.pass(random.next() * ttlMs * 0.2);
    await actor.release(holding);
  } catch (error) {
    const expected = error instanceof LockTimeoutError || error instanceof DriverError || error instanceof ClosedError;
    if (!expected) throw error;
    actor.site.machine.note(`${actor.name}: ${error.message}`);
  }
};

function must(actor: Actor, holds: boolean, otherwise: string): void {
  if (!holds) actor.site.machine.world.fail(`${actor.name}: ${otherwise}`);
}
