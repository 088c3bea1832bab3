/** Waits that end: by the grant, by their time, by their signal; none leaves anything behind. */

import assert from "node:assert/strict";
import type { Lock } from "../../client/lock.ts";
import type { LockTimeoutError } from "../../errors.ts";
import type { Stopped } from "../chaos.ts";
import { randomOf } from "../random.ts";
import type { Scene } from "../scene.ts";
import type { Check, Subject } from "../subject.ts";
import type { Player } from "./players.ts";
import { coded, empty, holding, passes, pending, placed, player, stateOf } from "./players.ts";

export function waiting(check: Check, subject: Subject): void {
  aborting(check);
  missing(check, subject);

  check(
    "waiters of one client and of others that time out leave no place, and who waits behind them is served",
    async (scene) => {
      const [one, other] = [await player(scene), await player(scene, { handoffs: 1 })];
      const lock = await holding(one.locks, "key");
      const short = [one, other, other, one].map(({ locks }) => pending(locks.acquire("key", { wait: 60 })));
      const long = [one, other].map(({ locks }) => pending(locks.acquire("key", { wait: scene.ms(5_000) })));
      await Promise.all(short.map((wait) => assert.rejects(wait, coded("LOCK_TIMEOUT"))));
      await lock.release();
      await Promise.all(long.map(async (wait) => (await wait).release()));
      await empty(scene);
    },
  );

  check("a wait that runs out says how many were ahead: at the store and in its own client", async (scene) => {
    const [one, other] = [await player(scene), await player(scene)];
    const lock = await holding(one.locks, "key");
    const [second, third] = [pending(one.locks.acquire("key")), pending(other.locks.acquire("key"))];
    await placed(scene, 2);
    await assert.rejects(other.locks.acquire("key", { wait: 50 }), (error: LockTimeoutError) => {
      coded("LOCK_TIMEOUT")(error);
      assert.equal(error.blocked.holder, "the holder");
      assert.equal(error.blocked.ahead, 2, "the holder at the store, and the request before it here");
      return true;
    });
    await lock.release();
    await Promise.all([second, third].map(async (wait) => (await wait).release()));
    await empty(scene);
  });

  check("tryAcquire and wait: 0 ask once and leave no place", async (scene) => {
    const [one, other] = [await player(scene), await player(scene)];
    const lock = await holding(one.locks, "key");
    const before = other.line.calls("claim");
    assert.equal(await other.locks.tryAcquire("key"), null);
    assert.equal(other.line.calls("claim"), before + 1);
    await assert.rejects(other.locks.acquire("key", { wait: 0 }), coded("LOCK_TIMEOUT"));
    await placed(scene, 1);
    await lock.release();
    await empty(scene);
  });
}

function aborting(check: Check): void {
  check("an aborted waiter rejects with its signal's reason and leaves no place", async (scene) => {
    const [one, other] = [await player(scene), await player(scene)];
    const lock = await holding(one.locks, "key");
    const abort = new AbortController();
    const waits = pending(other.locks.acquire("key", { signal: abort.signal }));
    await placed(scene, 2);
    const reason = new RangeError("enough");
    abort.abort(reason);
    await assert.rejects(waits, (error) => error === reason);
    await placed(scene, 1);
    await lock.release();
    await empty(scene);
  });

  check("a signal that was aborted before rejects at once, and nothing is sent", async (scene) => {
    const { locks, line } = await player(scene);
    await passes(locks.mutex("warm up"), scene);
    const before = line.calls("claim");
    const signal = AbortSignal.abort(new RangeError("no"));
    await assert.rejects(locks.acquire("key", { signal }), RangeError);
    await assert.rejects(locks.tryAcquire("key", { signal }), RangeError);
    await assert.rejects(
      locks.using("key", { signal }, () => assert.fail("the body is not run")),
      RangeError,
    );
    assert.equal(line.calls("claim"), before);
  });

  check("a signal that is aborted while the lock is held does not release it", async (scene) => {
    const { locks } = await player(scene);
    const abort = new AbortController();
    const lock = await locks.acquire("key", { signal: abort.signal });
    abort.abort();
    lock.throwIfLost();
    assert.ok(!lock.signal.aborted);
    assert.equal(await lock.release(), true);
  });

  for (const [step, stop] of STEPS) {
    check(`an abort ${step} leaves nothing`, async (scene) => {
      for (const busy of [false, true]) await abortAt(scene, stop, busy);
    });
  }

  check("an abort while the waiting claim is being renewed leaves nothing", async (scene) => {
    const [one, other] = [await player(scene, { ttl: scene.lease(400) }), await player(scene)];
    const holder = await holding(other.locks, "key");
    const stopped = one.line.stopNext("renew", "after");
    const abort = new AbortController();
    const waits = pending(one.locks.acquire("key", { signal: abort.signal }));
    await stopped.reached;
    abort.abort(new RangeError("enough"));
    await assert.rejects(waits, RangeError);
    stopped.pass();
    await placed(scene, 1);
    await holder.release();
    await empty(scene);
  });

  check("aborts at random moments leave nothing, and whoever was granted holds", async (scene) => {
    const random = randomOf(11);
    const players = [await player(scene), await player(scene, {}, { delayCall: 0.5, longestMs: 3, seed: 5 })];
    const attempts = Array.from({ length: 60 }, async (_, index) => {
      const { locks } = players[index % 2] as Player;
      const abort = new AbortController();
      const pause = random.next() * 60;
      const timer = scene.pause(pause).then(() => abort.abort(new RangeError("enough")));
      try {
        const lock = await locks.acquire(`key ${index % 3}`, { signal: abort.signal });
        lock.throwIfLost();
        assert.equal(await lock.release(), true);
      } catch (error) {
        assert.ok(error instanceof RangeError, String(error));
      }
      await timer;
    });
    await Promise.all(attempts);
    await empty(scene);
  });
}

/** Stops an acquire somewhere on its way; says when it has come there. */
type Stop = (one: Player) => Stopped;

const STEPS: readonly (readonly [string, Stop])[] = [
  ["before the claim reaches the store", ({ line }) => line.stopNext("claim", "before")],
  ["before the claim reaches the store, which gets it after the release and unheard,", outrunByRelease],
  [
    "when the store has answered the claim, but its answer is on the way",
    ({ line }) => line.stopNext("claim", "after"),
  ],
  ["when the claim's answer was lost", loseAnswer],
  ["when its release gets lost on the way", loseRelease],
];

function loseRelease({ line }: Player): Stopped {
  line.loseNextCall("release", 2);
  return line.stopNext("claim", "after");
}

function loseAnswer({ line }: Player): Stopped {
  line.loseNextReply("claim");
  return line.stopNext("claim", "after");
}

function outrunByRelease({ line }: Player): Stopped {
  const { reached, pass } = line.stopNext("claim", "before");
  line.loseNextReply("claim"); // a client that heard of the grant would give it back
  const release = line.stopNext("release", "after");
  release.pass();
  return { reached, pass: () => void release.reached.then(pass) };
}

/** An acquire is stopped on its way and aborted there; whatever was under way arrives afterwards. */
async function abortAt(scene: Scene, stop: Stop, busy: boolean): Promise<void> {
  const [one, other] = [await player(scene), await player(scene)];
  const holder = busy ? await holding(other.locks, "key") : null;
  const abort = new AbortController();
  const stopped = stop(one);
  const acquire = pending(one.locks.acquire("key", { signal: abort.signal }));
  await stopped.reached;
  abort.abort(new RangeError("enough"));
  await assert.rejects(acquire, RangeError);
  stopped.pass();
  assert.equal(await (holder?.release() ?? true), true);
  await empty(scene);
  await passes(other.locks.mutex("key"), scene);
  await passes(one.locks.mutex("key"), scene);
}

function missing(check: Check, { traits }: Subject): void {
  check("a grant that comes while its request is still asking is not missed", async (scene) => {
    const [one, other] = [await player(scene), await player(scene)];
    for (let round = 0; round < 5; round++) {
      const holder = await holding(other.locks, "key");
      const stopped = one.line.stopNext("claim", "after");
      const waits = pending(one.locks.acquire("key", { wait: scene.ms(5_000) }));
      await stopped.reached;
      await holder.release(); // the grant is announced before its waiter knows that it waits
      stopped.pass();
      assert.equal(await (await waits).release(), true);
    }
    await empty(scene);
  });

  check("waiters are served although every call and push is late", async (scene) => {
    const disturbed = { delayCall: 0.8, delayPush: 0.8, repeatPush: 0.3, blurPush: 0.3, longestMs: 5 };
    const players = [
      await player(scene, {}, disturbed),
      await player(scene, { handoffs: 1 }, { ...disturbed, seed: 2 }),
    ];
    let inside = 0;
    const body = async (): Promise<void> => {
      assert.equal(++inside, 1);
      await scene.pause(1);
      inside--;
    };
    const waits = players.flatMap(({ locks }) =>
      Array.from({ length: 10 }, () => locks.using("key", { wait: scene.ms(5_000) }, body)),
    );
    await Promise.all(waits);
    await empty(scene);
  });

  if (!traits.lease.claim) return;

  check("a waiter whose pushes are lost is granted all the same, within its lease", async (scene) => {
    const ttl = scene.lease(900);
    const [one, other] = [await player(scene, { ttl }), await player(scene)];
    const holder = await other.locks.acquire("key", { ttl });
    one.line.loseNextPush(1_000);
    const waits = pending(one.locks.acquire("key"));
    await placed(scene, 2);
    await holder.release();
    const lock: Lock = await scene.until(
      "the grant",
      async () => ((await stateOf(waits)) === "pending" ? null : waits),
      ttl,
    );
    assert.equal(await lock.release(), true);
  });
}
