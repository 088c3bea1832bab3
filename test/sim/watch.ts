/**
 * What may never happen, checked while it could. It sees everything from outside: what stores answer, what clients
 * believe, and true time.
 */

import { admittedCount } from "../../src/core/line.ts";
import { LockLostError } from "../../src/errors.ts";
import type { Lock } from "../../src/index.ts";
import type { Answer, Claim, ClaimId, Hold } from "../../src/spi/driver.ts";
import type { Machine } from "./machine.ts";
import type { World } from "./world.ts";

/** A lock as somebody in the simulated world has it. */
export interface Holding {
  readonly name: string;
  readonly machine: Machine;
  /** Its client: one that is being closed gives everything back at once. */
  readonly client: { readonly closing: boolean };
  readonly lock: Lock;
  readonly holds: readonly Hold[];
  /** 0: not known. */
  readonly leaseMs: number;
  /** Until here its lease stood when it was last looked at, by the clock of its machine that also counts sleep. */
  leaseUntil: number;
  /** Told to stop while its lease stands, and still at it. */
  stopping: boolean;
}

/** After a first failure a call is sent again within this time. */
const FIRST_RETRY_MS = 25;

interface KeyHistory {
  /** Held now, or about to be found lost. */
  readonly holdings: Set<Holding>;
  readonly seen: Set<bigint>;
  highest: bigint;
  highestExclusive: bigint;
}

export class Watch {
  readonly world: World;
  readonly #keys = new Map<string, KeyHistory>();
  readonly #names = new Map<ClaimId, string>();
  /** How often its release was sent. */
  readonly #leaving = new Map<ClaimId, number>();
  /** When it was last claimed or renewed, by its machine's clock. */
  readonly #lastCall = new Map<ClaimId, number>();
  /** When the store had done a release that was answered, in true time. */
  readonly #released = new Map<ClaimId, number>();
  readonly #nudges = new Map<ClaimId, { readonly machine: Machine; readonly at: number; readonly lateMs: number }>();
  /** Longest answer time a client grants a call, plus its scheduling: a nudge is answered by a call within it. */
  nudgeBoundMs = Number.POSITIVE_INFINITY;
  grants = 0;

  constructor(world: World) {
    this.world = world;
  }

  /** Claims are numbered as they come up: their ids are not of the seed. */
  name(id: ClaimId): string {
    let name = this.#names.get(id);
    if (name === undefined) {
      name = `#${this.#names.size + 1}`;
      this.#names.set(id, name);
    }
    return name;
  }

  // --- calls

  /** A call about these claims leaves a client. */
  called(machine: Machine, ids: readonly ClaimId[]): void {
    for (const id of ids) {
      this.#lastCall.set(id, machine.now);
      const nudge = this.#nudges.get(id);
      if (nudge === undefined) continue;
      this.#nudges.delete(id);
      const waited = machine.now - nudge.at - (machine.lateMs - nudge.lateMs) * machine.rate;
      if (waited > this.nudgeBoundMs) {
        this.world.fail(`${machine.name} asked about ${this.name(id)} only ${waited.toFixed(0)} ms after a nudge`);
      }
    }
  }

  nudged(machine: Machine, id: ClaimId): void {
    if (!this.#leaving.has(id) && !this.#nudges.has(id))
      this.#nudges.set(id, { machine, at: machine.now, lateMs: machine.lateMs });
  }

  /** These claims have left their client with its consent: nobody need ask about them. */
  detached(reference: string): void {
    const body = Buffer.from(reference.split(".")[1] ?? "", "base64url").toString();
    const { c: claims } = JSON.parse(body) as { readonly c: readonly (readonly [ClaimId])[] };
    for (const [id] of claims) {
      this.#leaving.set(id, Number.POSITIVE_INFINITY);
      this.#nudges.delete(id);
    }
  }

  /** A release of these claims leaves a client: it need not ask any more, but must not give up leaving. */
  leaving(machine: Machine, claims: readonly Claim[]): void {
    for (const { id, ttlMs } of claims) {
      this.#nudges.delete(id);
      const calls = (this.#leaving.get(id) ?? 0) + 1;
      this.#leaving.set(id, calls);
      // in a batch it would wait as long as the one that has failed most often
      if (calls === 1 && claims.length === 1) this.#mustLeave(machine, id, Number(ttlMs));
    }
  }

  /** A release that is not answered is sent again, unless the store has forgotten the claim by then. */
  #mustLeave(machine: Machine, id: ClaimId, ttlMs: number): void {
    const { lateMs } = machine;
    const patience = ttlMs / 6 + FIRST_RETRY_MS;
    if (machine.now + patience >= (this.#lastCall.get(id) ?? 0) + ttlMs) return;
    this.world.after(patience / machine.rate, () => {
      if (machine.state === "dead" || machine.lateMs > lateMs) return;
      if (this.#leaving.get(id) === 1 && !this.#released.has(id)) {
        this.world.fail(`${machine.name} does not send the release of ${this.name(id)} again`);
      }
    });
  }

  /** A release of this claim was answered; the store had done it then. */
  releaseAnswered(id: ClaimId, doneAt: number): void {
    this.#released.set(id, doneAt);
  }

  /** The store answered a `claim` call. What is late by more than a lease nobody has to remember. */
  stood({ id, ttlMs }: Claim, answer: Answer): void {
    const lateMs = this.world.now - (this.#released.get(id) ?? Number.NEGATIVE_INFINITY);
    if (answer.state !== "none" && lateMs < 0.98 * Number(ttlMs)) {
      this.world.fail(`${this.name(id)} was given a place after its release had been answered`);
    }
  }

  // --- holders

  /** What is known of a key before a request for it is made. */
  highestSeen(holds: readonly Hold[]): ReadonlyMap<string, bigint> {
    return new Map(holds.map(({ key }) => [key, this.#of(key).highest]));
  }

  /** A request was granted. `before`: highestSeen() when it was made. */
  granted(holding: Holding, before: ReadonlyMap<string, bigint>): void {
    this.grants++;
    if (holding.lock.remainingMs === 0) this.world.fail(`${holding.name} was given a lock that is lost already`);
    for (const { key, permits, limit } of holding.holds) {
      const token = holding.lock.tokenOf(key);
      const known = this.#of(key);
      const exclusive = permits === limit;
      const least = exclusive ? known.highest : known.highestExclusive;
      const wasSeen = before.get(key) ?? 0n;
      if (known.seen.has(token)) this.world.fail(`${holding.name}: token ${token} of ${key} was granted twice`);
      if (token <= least) this.world.fail(`${holding.name}: token ${token} of ${key} is not above ${least}`);
      if (token <= wasSeen) {
        this.world.fail(
          `${holding.name}: token ${token} of ${key} is not above ${wasSeen}, seen before it was asked for`,
        );
      }
      known.seen.add(token);
      if (token > known.highest) known.highest = token;
      if (exclusive && token > known.highestExclusive) known.highestExclusive = token;
    }
    this.resumed(holding);
  }

  /** It is held (again: after attach), with tokens that are known. */
  resumed(holding: Holding): void {
    for (const { key } of holding.holds) this.#of(key).holdings.add(holding);
  }

  /** Its holder has stopped working with it. */
  ended(holding: Holding): void {
    for (const { key } of holding.holds) this.#of(key).holdings.delete(holding);
  }

  /** Has somebody been granted a key after this holder that cannot be shared with it? */
  isOvertaken({ holds, lock }: Holding): boolean {
    return holds.some(({ key, permits, limit }) => {
      const known = this.#of(key);
      return lock.tokenOf(key) < (permits === limit ? known.highest : known.highestExclusive);
    });
  }

  /** Never more admitted than the limit allows, by the holders' own clocks. */
  check(): void {
    for (const [key, { holdings }] of this.#keys) {
      if (holdings.size < 2) continue;
      const here = [...holdings].filter((holding) => this.#isHere(holding));
      if (here.length < 2) continue;
      const places = here
        .map((holding) => ({ id: holding.name, token: holding.lock.tokenOf(key), ...holdOf(holding, key) }))
        .sort((a, b) => (a.token < b.token ? -1 : 1));
      if (admittedCount(places) < places.length) {
        this.world.fail(`${key} is held by ${places.map(({ id, token }) => `${id} (token ${token})`).join(" and ")}`);
      }
    }
  }

  /** Looks at a holder before something happens on its machine: until when could it be working? */
  look(holding: Holding): void {
    const left = holding.lock.remainingMs;
    if (left > 0) holding.leaseUntil = holding.machine.clock.uptime() + left;
  }

  #isHere(holding: Holding): boolean {
    const { machine, lock, client } = holding;
    if (machine.state === "dead" || machine.state === "asleep") return false;
    if (holding.stopping) return !client.closing && machine.clock.uptime() < holding.leaseUntil;
    try {
      lock.throwIfLost();
      holding.leaseUntil = machine.clock.uptime() + lock.remainingMs;
      return true;
    } catch (error) {
      if (!(error instanceof LockLostError)) throw error;
      // told to go although its lease stands: until its body has ended nobody may enter
      holding.stopping = error.reason === "maxHold" || error.reason === "revoked";
      return holding.stopping && !client.closing && machine.clock.uptime() < holding.leaseUntil;
    }
  }

  #of(key: string): KeyHistory {
    let known = this.#keys.get(key);
    if (known === undefined) {
      known = { holdings: new Set(), seen: new Set(), highest: 0n, highestExclusive: 0n };
      this.#keys.set(key, known);
    }
    return known;
  }
}

function holdOf({ holds }: Holding, key: string): { readonly permits: number; readonly limit: number } {
  const hold = holds.find((one) => one.key === key);
  if (hold === undefined) throw new Error(`no hold on ${key}`);
  return hold;
}
