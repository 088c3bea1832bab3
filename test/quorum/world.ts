/** A majority of lock tables behind a bad network, in simulated time: everything follows from a seed. */

import type { Clock, Timer } from "../../src/clock.ts";
import { delegate } from "../../src/conformance/delegate.ts";
import type { MemoryStore } from "../../src/drivers/memory.ts";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import { FatalDriverError } from "../../src/errors.ts";
import type { Answer, Claim, ClaimId, Driver, Notify } from "../../src/spi/driver.ts";
import type { FakeClock } from "../support/fake-clock.ts";
import { fakeClock } from "../support/fake-clock.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import { seededRandom } from "../support/seeded-random.ts";

/** After so long a link's client gives up on a call by itself. */
const GIVES_UP_MS = 3_000;

/** One store. */
export interface Site {
  store: MemoryStore;
  /** Counts its lives: what was placed in an earlier one is forgotten. */
  life: number;
  /** Takes no calls: silent, or refusing, as if for good or not. */
  away: "silent" | "refusing" | "fatal" | null;
  /** Of what was given back for good when it was released there, by its life and id. */
  readonly released: Map<string, number>;
  /** A message there or back takes up to so long. */
  readonly slowMs: number;
  /** A life of a clock of its own. */
  fresh(): MemoryStore;
  /** Somebody sets its wall clock. */
  setWall(byMs: number): void;
}

export interface World {
  readonly random: SeededRandom;
  readonly clock: FakeClock;
  readonly sites: readonly Site[];
  readonly ttlMs: number;
  /** How likely a message is lost while there is trouble. */
  readonly loss: number;
  /** Members come back empty; else their wall clocks are set. Not both, or tokens have nothing to rise by. */
  readonly forgets: boolean;
  isQuiet: boolean;
  /** Claims that are given back for good. */
  readonly gone: Set<ClaimId>;
  /** Of these, places that were made where the claim had been released already, and stayed. */
  readonly strays: string[];
  pause(ms: number): Promise<void>;
  /** A clock whose rate differs by up to half a per cent from true time. */
  drifted(): Clock;
}

export function worldOf(seed: number): World {
  const random = seededRandom(seed);
  const clock = fakeClock();
  const drifted = (): Drifted => drifting(clock, 0.995 + random.next() * 0.01, (random.next() - 0.5) * 500);
  const members = random.chance(0.7) ? 3 : 5;
  const slow = random.chance(0.4) ? random.int(members) : -1;
  const sites = Array.from({ length: members }, (_, index): Site => {
    const own = drifted();
    const fresh = (): MemoryStore => memoryStore(own);
    const { setWall } = own;
    return {
      store: fresh(),
      life: 1,
      away: null,
      released: new Map(),
      slowMs: index === slow ? 400 : 3,
      fresh,
      setWall,
    };
  });
  return {
    random,
    clock,
    sites,
    ttlMs: 1_000 + random.int(2_000),
    loss: random.chance(0.5) ? 0.03 : 0,
    forgets: random.chance(0.6),
    isQuiet: false,
    gone: new Set(),
    strays: [],
    pause: (ms) => paused(clock, ms),
    drifted,
  };
}

/** One client's driver of one member, across the network. `cut`: nothing passes. */
export function linkTo(world: World, site: Site, isCut: () => boolean): Driver {
  const random = world.random.fork();
  let sink: Notify = () => undefined;
  let life = 0;
  let inner = memory({ store: site.store });

  /** Now and then very late, but not where order in time is all that is left to check. */
  function travels(): Promise<void> {
    const longest = !world.isQuiet && random.chance(0.02) ? world.ttlMs : site.slowMs;
    return world.pause(random.next() * longest);
  }

  const isLost = (): boolean => isCut() || site.away === "silent" || (!world.isQuiet && random.chance(world.loss));

  /** The driver of the site's present life; its pushes take their time, and may be lost. */
  async function there(): Promise<Driver> {
    if (life === site.life) return inner;
    life = site.life;
    inner = memory({ store: site.store });
    const born = life;
    await inner.open((id, answer) => {
      void travels().then(() => {
        if (born !== site.life || isLost() || site.away !== null) return;
        if (answer === undefined || random.chance(0.1)) sink(id);
        else sink(id, answer);
      });
    });
    return inner;
  }

  async function call<T>(work: (driver: Driver) => Promise<T>): Promise<T> {
    const silence = async (): Promise<never> => {
      await world.pause(GIVES_UP_MS);
      throw new Error("no answer");
    };
    await travels();
    if (site.away === "refusing") throw new Error("refused");
    if (site.away === "fatal") throw new FatalDriverError("refused for good");
    if (isLost()) {
      // it may come later than anybody thinks, while the store would still know the claim
      if (random.chance(0.3)) late(work);
      return silence();
    }
    const born = site.life;
    const answer = await work(await there());
    await travels();
    if (born !== site.life || isLost()) return silence();
    return answer;
  }

  function late<T>(work: (driver: Driver) => Promise<T>): void {
    const born = site.life;
    void world.pause(random.next() * world.ttlMs * 0.8).then(async () => {
      if (site.away === null && site.life === born) await work(await there());
    });
  }

  async function placed(driver: Driver, claim: Claim): Promise<Answer> {
    const { store } = site;
    const releasedAt = site.released.get(`${site.life} ${claim.id}`);
    // a store remembers for a ttl that a claim may still come
    const isLate = releasedAt !== undefined && world.clock.now() - releasedAt < 0.98 * world.ttlMs;
    const answer = await driver.claim(claim);
    if (!isLate || answer.state === "none") return answer;
    // who took it up may be at work on it still, and ends it when it asks
    void world.pause(0.6 * world.ttlMs).then(() => {
      if (store.table.entries.get(claim.id) !== undefined) world.strays.push(claim.holds[0].key);
    });
    return answer;
  }

  return delegate(inner, {
    async open(notify) {
      if (site.away !== null || isCut()) throw new Error("not reached");
      sink = notify;
    },
    claim: (claim) => call((driver) => placed(driver, claim)),
    async renew(claims) {
      const answers = await call((driver) => driver.renew(claims));
      // a part of the member was in trouble
      return answers.map((answer) => (!world.isQuiet && random.chance(0.02) ? undefined : answer));
    },
    release: (claims, unanswered) =>
      call((driver) => {
        for (const { id } of claims) if (world.gone.has(id)) site.released.set(`${site.life} ${id}`, world.clock.now());
        return driver.release(claims, unanswered);
      }),
    detach: (claims) => call(async (driver) => (await driver.detach?.(claims)) ?? []),
    list: (filter, max, after) => call((driver) => driver.list(filter, max, after)),
    async close() {
      sink = () => undefined;
    },
  });
}

function paused(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => clock.timer(resolve).set(clock.now() + ms));
}

interface Drifted extends Clock {
  setWall(byMs: number): void;
}

function drifting(clock: FakeClock, rate: number, startMs: number): Drifted {
  let aheadMs = startMs;
  return {
    setWall(byMs) {
      aheadMs += byMs;
    },
    now: () => clock.now() * rate,
    wall: () => clock.wall() + aheadMs,
    uptime: () => clock.uptime() * rate,
    timer(run): Timer {
      const timer = clock.timer(run);
      return {
        ...timer, // never a rounding early: who finds that nothing is due yet sets it again
        set: (due) => timer.set(due === null ? null : due / rate + 1e-6),
      };
    },
  };
}
