/** One seed of whole clients against core/table behind a bad network. */

import type { SeededRandom } from "../support/seeded-random.ts";
import type { Stage } from "./actor.ts";
import { Actor } from "./actor.ts";
import { Machine } from "./machine.ts";
import { FAIR, Network } from "./network.ts";
import type { Mishap, Plan } from "./plan.ts";
import { planOf } from "./plan.ts";
import { RpcStore, rpcDriver } from "./rpc-store.ts";
import { Site } from "./site.ts";
import { Watch } from "./watch.ts";
import type { World } from "./world.ts";

/** After trouble has ended, everybody who waits is served within this many leases. */
const REST_LEASES = 100;

export class RpcWorld implements Stage {
  readonly world: World;
  readonly plan: Plan;
  readonly watch: Watch;
  readonly revoked: Set<string> = new Set();
  isQuiet = false;
  readonly #random: SeededRandom;
  readonly #network: Network;
  readonly #store: RpcStore;
  readonly #sites: Site[] = [];
  #lives = 0;

  constructor(world: World) {
    this.world = world;
    this.#random = world.random.fork();
    this.plan = planOf(this.#random);
    const random = this.#random;
    this.watch = new Watch(world);
    // a call under way is given up on after a sixth of the ttl; then another is sent at once
    this.watch.nudgeBoundMs = this.plan.ttlMs / 6 + 1;
    this.#network = new Network(world, this.plan.weather);
    const manners = {
      timer: random.chance(0.5),
      looks: random.chance(0.5),
      nudges: random.pick([0, 0.3, 1]),
      manyKeys: random.chance(0.75),
    };
    this.#store = new RpcStore(new Machine(world, "store", this.plan.drift), manners, this.watch);
    world.note("PLAN", JSON.stringify({ ...this.plan, ...manners }));
    world.check = () => this.watch.check();
    for (let index = 0; index < this.plan.clients; index++) this.#start(`c${index}`);
    for (let index = 0; index < this.plan.mishaps; index++) {
      world.at(random.next() * this.plan.troubleMs, () => this.#mishap());
    }
  }

  async run(): Promise<void> {
    const { world, plan } = this;
    await world.run(plan.troubleMs);
    this.#calm();
    const isDone = (): boolean => this.#alive().every((site) => site.busy === 0);
    await world.run(world.now + REST_LEASES * plan.ttlMs, isDone);
    if (world.failure === null && !isDone()) world.fail("somebody waits in vain, although all trouble is over");
    await world.run(world.now + 2 * plan.ttlMs, () => this.#alive().every((site) => site.leftOvers() === ""));
    for (const site of this.#alive()) {
      if (site.leftOvers() !== "") world.fail(`${site.machine.name} has left over: ${site.leftOvers()}`);
    }
    await this.#close();
    this.#inspectStore();
  }

  anySite(): Site | null {
    const running = this.#alive().filter(({ machine }) => machine.state === "running");
    return running.length === 0 ? null : this.#random.pick(running);
  }

  #alive(): Site[] {
    return this.#sites.filter((site) => site.isAlive);
  }

  #start(name: string): void {
    if (this.isQuiet) return;
    const machine = new Machine(this.world, `${name}.${++this.#lives}`, this.plan.drift);
    const site = new Site(machine, rpcDriver(machine, this.#store, this.#network), this.plan);
    this.#sites.push(site);
    for (let index = 0; index < this.plan.actors; index++) void new Actor(`${name}${"pqrs"[index]}`, site, this).live();
  }

  #mishap(): void {
    const random = this.#random;
    const { ttlMs, kinds } = this.plan;
    const site = this.anySite();
    const kind: Mishap = random.pick(kinds);
    const ms = Math.round(random.next() * random.pick([0.1, 0.5, 2]) * ttlMs);
    if (kind === "storePause") return this.#store.machine.pause(Math.min(ms, ttlMs * 0.5));
    if (site === null) return;
    const { machine } = site;
    const name = machine.name.split(".")[0] as string;
    switch (kind) {
      case "pause":
        return machine.pause(ms);
      case "sleep":
        return machine.pause(300 + ms, true);
      case "kill":
        machine.kill();
        this.world.after(ms, () => this.#start(name));
        return;
      case "redeploy":
        machine.note("closes");
        site.closing = true;
        void site.locks.close();
        return this.#start(name);
      case "cut":
        this.#network.cut.add(machine);
        machine.note(`cut off for ${ms} ms`);
        this.world.after(ms, () => this.#network.cut.delete(machine));
        return;
      case "wall":
        if (random.chance(0.3)) return this.#store.machine.stepWall(random.pick([-1, 1]) * ms);
        return machine.stepWall(random.pick([-1, 1]) * ms);
      case "revoke":
        return this.#revoke();
    }
  }

  /** An operator asks a holder to go. */
  #revoke(): void {
    const held = [...this.#store.table.entries.values()].filter(({ held: isHeld }) => isHeld);
    if (held.length === 0) return;
    const { claim, token, tokens } = this.#random.pick(held);
    this.world.note("operator", `revokes ${this.watch.name(claim.id)}`);
    for (const { key } of claim.holds) {
      for (let index = 0; index < tokens; index++) this.revoked.add(`${key} ${token + index}`);
    }
    const { table, machine } = this.#store;
    table.revoke(claim.holds[0].key, token, false, machine.clock.now(), this.#store.micros());
    this.#store.passOn();
  }

  #calm(): void {
    this.world.note("world", "no more trouble");
    this.isQuiet = true;
    this.#network.weather = FAIR;
    this.#network.cut.clear();
  }

  async #close(): Promise<void> {
    const { world, plan } = this;
    if (world.failure !== null) return;
    const sites = this.#alive();
    let open = sites.length;
    for (const site of sites) {
      site.closing = true;
      void site.locks.close().then(() => open--);
    }
    await world.run(world.now + 2 * plan.ttlMs, () => open === 0);
    if (open > 0) world.fail("close() does not settle");
    for (const { machine } of sites)
      if (machine.armed > 0) world.fail(`${machine.name}: a timer is left after close()`);
  }

  /** Once every lease has ended, the store keeps nothing. */
  #inspectStore(): void {
    const { world, plan } = this;
    if (world.failure !== null) return;
    const { table, machine } = this.#store;
    world.now += 3 * plan.ttlMs;
    const now = machine.clock.now();
    table.advance(now, this.#store.micros());
    table.advance(now + 3 * plan.ttlMs, this.#store.micros() + 86_400_000_000);
    const { entries, endings, mint } = table;
    const left = [entries.size, endings.size, mint.lines.size, mint.lingering];
    if (left.some((count) => count > 0) || table.nextDue() !== null) {
      world.fail(`the store keeps ${left.join(", ")} entries, endings, lines, notes`);
    }
  }
}
