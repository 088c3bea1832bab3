// Random clients on a server whose disk hangs and fails, which crashes and stops, and what must hold whatever they do.

import type { Driver } from "../../src/spi/driver.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import type { Known } from "./accounts.ts";
import { accessFor, known } from "./accounts.ts";
import type { Mine } from "./beliefs.ts";
import { Beliefs, believes } from "./beliefs.ts";
import { claimOf } from "./support.ts";
import type { FakeDisk, Player } from "./world.ts";
import { turns, World } from "./world.ts";

const KEYS = ["a", "b", "c"];
const LEASES = [2_000, 20_000, 50_000, 58_000, 61_000, 90_000, "session"] as const;
/** More than any lease, and than a reclaim. */
const ALL_OVER_MS = 400_000;
/** Claims of one account, and places that wait, at the end. */
const ROOM = 40;

interface Actor {
  readonly local: boolean;
  player: Player;
  seen: number;
  readonly mine: Map<string, Mine>;
}

export class DiskStorm {
  readonly #random: SeededRandom;
  readonly #world: World;
  readonly #disk: FakeDisk;
  readonly #ana: Known;
  readonly #actors: Actor[] = [];
  readonly #beliefs = new Beliefs();
  readonly faults: string[] = [];
  readonly trace: string[] = [];
  #open: (() => void) | null = null;
  #pending = 0;

  constructor(random: SeededRandom) {
    this.#random = random;
    this.#ana = known("ana");
    const access = accessFor(this.#ana);
    this.#world = new World({ remote: true, access, limits: { claimsPerAccount: 3 * ROOM, waiters: 2 * ROOM } });
    this.#disk = this.#world.disk as FakeDisk;
  }

  async run(steps: number): Promise<void> {
    await this.#world.start();
    for (const local of [true, true, false]) {
      this.#actors.push({ local, player: await this.#newPlayer(local), seen: 0, mine: new Map() });
    }
    for (let step = 0; step < steps && this.faults.length === 0; step++) {
      await this.#step();
      await turns(this.#random.int(4));
      this.#look();
    }
    await this.#end();
  }

  async #step(): Promise<void> {
    const actor = this.#random.pick(this.#actors);
    const dice = this.#random.int(100);
    if (dice < 30) this.#claim(actor);
    else if (dice < 45) this.#renew(actor);
    else if (dice < 60) this.#release(actor);
    else if (dice < 66) this.#detach(actor);
    else if (dice < 70) this.#revoke(actor);
    else if (dice < 75) await this.#cut(actor);
    else if (dice < 82) this.#toggleGate();
    else if (dice < 86) this.#disk.full = this.#random.pick([false, false, true, "journal"] as const);
    else if (dice < 88) this.#world.serverAheadMs += 40_000;
    else if (dice < 98) await this.#world.clock.pass(this.#random.pick([10, 200, 1_500, 7_000, 20_000, 70_000]));
    else await this.#restart();
  }

  #claim(actor: Actor): void {
    const key = this.#random.pick(KEYS);
    const ttlMs = this.#random.pick(LEASES);
    const claim = claimOf(key, { ttlMs, wait: this.#random.int(4) > 0 });
    const askedAt = this.#now();
    const state = { token: null, heldAt: 0, isAnswered: false, isLeft: false, isDetached: false };
    const mine: Mine = { claim, key, askedAt, deadline: askedAt, ...state };
    actor.mine.set(claim.id, mine);
    this.#beliefs.all.push(mine);
    this.#say("claim", key, ttlMs, claim.id);
    this.#called(actor.player.driver.claim(claim), (answer) => {
      mine.isAnswered = true;
      this.#learn(actor, mine, answer, askedAt);
    });
  }

  #renew(actor: Actor): void {
    const live = [...actor.mine.values()].filter(({ isLeft }) => !isLeft);
    if (live.length === 0) return;
    const sentAt = this.#now();
    this.#called(actor.player.driver.renew(live.map(({ claim }) => claim)), (answers) => {
      for (const [at, mine] of live.entries()) {
        const answer = answers[at];
        if (answer !== undefined) this.#learn(actor, mine, answer, sentAt);
      }
    });
  }

  #release(actor: Actor): void {
    if (actor.mine.size > 0) this.#leave(actor, this.#random.pick([...actor.mine.values()]));
  }

  #leave(actor: Actor, mine: Mine): void {
    mine.isLeft = true;
    actor.mine.delete(mine.claim.id);
    this.#say("release", mine.claim.id);
    const again = (tries: number): void => {
      const unanswered = new Set(mine.isAnswered ? [] : [mine.claim.id]);
      this.#called(
        actor.player.driver.release([mine.claim], unanswered),
        () => undefined,
        () => tries > 0 && again(tries - 1),
      );
    };
    again(20);
  }

  #detach(actor: Actor): void {
    const held = [...actor.mine.values()].filter(
      (mine) => believes(mine, this.#now()) && mine.claim.ttlMs !== "session",
    );
    if (held.length === 0) return;
    const mine = this.#random.pick(held);
    const sentAt = this.#now();
    this.#say("detach", mine.claim.id);
    this.#called(actor.player.driver.detach?.([mine.claim]) as Promise<readonly boolean[]>, ([done]) => {
      if (done !== true || mine.isLeft) return;
      mine.isDetached = true;
      mine.deadline = Math.max(mine.deadline, sentAt + 0.9 * Number(mine.claim.ttlMs));
    });
  }

  #revoke(actor: Actor): void {
    const all = this.#beliefs.now(this.#now());
    if (all.length === 0) return;
    const held = this.#random.pick(all);
    const now = this.#random.int(2) === 0;
    this.#say("revoke", held.claim.id, now);
    // its holder may still believe: that is what "at once" says
    if (now) held.isLeft = true;
    const target = { key: held.key, token: held.token as bigint, now };
    this.#called(actor.player.driver.revoke?.([target]) as Promise<readonly boolean[]>, () => undefined);
  }

  /** The death of a process on this machine; of another one its connection is lost, perhaps for a while. */
  async #cut(actor: Actor): Promise<void> {
    this.#say("cut", actor.local);
    if (!actor.local) {
      actor.player.unreachable = this.#random.int(2) === 0;
      actor.player.cut();
      return;
    }
    for (const mine of actor.mine.values()) if (!mine.isDetached) mine.isLeft = true;
    actor.mine.clear();
    const { player } = actor;
    player.process = "gone";
    actor.seen = 0;
    actor.player = await this.#newPlayer(true);
    player.cut();
    await player.driver.close();
  }

  #toggleGate(): void {
    this.#say(this.#open === null ? "hang" : "go on");
    if (this.#open === null) this.#open = this.#disk.hang();
    else this.#goOn();
  }

  #goOn(): void {
    this.#open?.();
    this.#open = null;
  }

  async #restart(): Promise<void> {
    const crashes = this.#random.int(3) > 0;
    this.#say("restart", crashes);
    if (crashes) {
      if (this.#random.int(2) === 0) this.#goOn();
      await turns(this.#random.int(2));
      this.#world.crash();
    } else {
      this.#goOn();
      await this.#world.stop().catch(() => this.#world.crash());
    }
    this.#goOn();
    await turns();
    this.#disk.full = false;
    await this.#world.start();
  }

  async #newPlayer(local: boolean): Promise<Player> {
    return this.#world.client(local, this.#ana.credential);
  }

  #called<T>(call: Promise<T>, done: (result: T) => void, failed: () => void = () => undefined): void {
    this.#pending++;
    call.then(
      (result) => {
        this.#pending--;
        done(result);
      },
      () => {
        this.#pending--;
        failed();
      },
    );
  }

  #learn(actor: Actor, mine: Mine, answer: Awaited<ReturnType<Driver["claim"]>>, sentAt: number): void {
    if (mine.isLeft || mine.isDetached) return;
    this.#say("told", mine.claim.id, answer.state);
    // what was revoked keeps its place until it is given back
    if (answer.state === "none") return this.#leave(actor, mine);
    const { ttlMs } = mine.claim;
    const most = Math.min(answer.ttlMs, ttlMs === "session" ? 30_000 : ttlMs);
    mine.deadline = Math.max(mine.deadline, sentAt + 0.9 * most);
    if (answer.state === "held" && mine.token === null) {
      this.faults.push(...this.#beliefs.granted(mine, answer.token, this.#now()));
    }
  }

  #look(): void {
    for (const actor of this.#actors) {
      const { pushes } = actor.player;
      for (const { id, answer } of pushes.slice(actor.seen)) {
        const mine = actor.mine.get(id ?? "");
        if (mine !== undefined && answer !== undefined) this.#learn(actor, mine, answer, mine.deadline - 1e9);
      }
      actor.seen = pushes.length;
    }
    this.faults.push(...this.#beliefs.conflicts(this.#now()));
    if (this.#disk.overlapped) this.faults.push("two writes of one file at a time");
  }

  async #end(): Promise<void> {
    this.#say("end");
    this.#goOn();
    this.#disk.full = false;
    const { clock } = this.#world;
    for (const actor of this.#actors) actor.player.unreachable = false;
    await clock.pass(10_000);
    for (const actor of this.#actors) for (const mine of [...actor.mine.values()]) this.#leave(actor, mine);
    await clock.pass(ALL_OVER_MS);
    if (this.#pending > 0) this.faults.push(`${this.#pending} calls have no answer`);
    this.#nothingLeft("at the end");
    await this.#roomForAll();
    this.#world.crash();
    await this.#world.start();
    this.#nothingLeft("after a crash");
  }

  #nothingLeft(when: string): void {
    const left = [...(this.#world.kept?.keeper.table.entries.values() ?? [])].map(({ claim }) => claim.id);
    if (left.length > 0) this.faults.push(`${left} are left ${when}`);
    for (const { entries } of this.#world.kept?.sessions.all.values() ?? []) {
      if (entries.size > 0) this.faults.push(`a session has ${entries.size} claims ${when}`);
    }
  }

  /** All that was counted has been given back. */
  async #roomForAll(): Promise<void> {
    const { driver } = (this.#actors[0] as Actor).player;
    const claims = Array.from({ length: 2 * ROOM + 1 }, () => claimOf("room"));
    try {
      for (const claim of claims) await driver.claim(claim);
    } catch (error) {
      this.faults.push(`at the end: ${error}`);
    }
    await driver.release(claims);
    await turns();
  }

  #say(...words: readonly unknown[]): void {
    this.trace.push(`${this.#now()} ${words.join(" ")}`);
  }

  #now(): number {
    return this.#world.clock.now();
  }
}
