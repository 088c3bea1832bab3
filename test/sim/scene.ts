/** One seed: clients and their users on a stage of misfortune, and what must be true when the curtain falls. */

import { tableViolations } from "../support/inspect-table.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import type { Stage } from "./actor.ts";
import { Actor } from "./actor.ts";
import type { Back } from "./back.ts";
import { Machine } from "./machine.ts";
import { FAIR, Network } from "./network.ts";
import type { Mishap, Plan } from "./plan.ts";
import { planOf } from "./plan.ts";
import { rpcBack } from "./rpc-back.ts";
import { serverBack } from "./server-back.ts";
import { Site } from "./site.ts";
import { Watch } from "./watch.ts";
import type { World } from "./world.ts";

/** After trouble has ended, everybody who waits is served within this many leases, or this time if it is longer. */
const REST_LEASES = 100;
const REST_MS = 200_000;

/** The table is looked at after one event in so many: to look after each would take as long as the rest. */
const INSPECT_EACH = 4;

export class Scene implements Stage {
  readonly world: World;
  readonly plan: Plan;
  readonly watch: Watch;
  readonly revoked: Set<string> = new Set();
  isQuiet = false;
  readonly #random: SeededRandom;
  readonly #network: Network;
  readonly #back: Back;
  readonly #sites: Site[] = [];
  #lives = 0;
  #events = 0;

  constructor(world: World) {
    this.world = world;
    this.#random = world.random.fork();
    const random = this.#random;
    this.plan = planOf(random, world.extras);
    this.watch = new Watch(world);
    this.#network = new Network(world, this.plan.weather);
    const set = { world, plan: this.plan, watch: this.watch, network: this.#network, random };
    this.#back = this.plan.store === "table" ? rpcBack(set) : serverBack(set);
    world.note("PLAN", JSON.stringify(this.plan));
    world.check = () => {
      this.watch.check();
      this.#inspect();
    };
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
    await world.run(world.now + Math.max(REST_LEASES * plan.ttlMs, REST_MS), isDone);
    if (world.failure === null && !isDone()) world.fail("somebody waits in vain, although all trouble is over");
    await world.run(world.now + Math.max(2 * plan.ttlMs, REST_MS), () =>
      this.#alive().every((site) => site.leftOvers() === ""),
    );
    for (const site of this.#alive()) {
      if (site.leftOvers() !== "") world.fail(`${site.machine.name} has left over: ${site.leftOvers()}`);
    }
    await this.#close();
    if (world.failure !== null) return;
    await world.run(world.now + this.#back.settleMs);
    const left = this.#back.leftOvers();
    if (left !== "") world.fail(`the store keeps ${left}`);
  }

  /** What a killed process would have taken along. */
  end(): void {
    for (const { client } of this.#sites) client.context.close();
  }

  anySite(): Site | null {
    const running = this.#alive().filter(({ machine }) => machine.state === "running");
    return running.length === 0 ? null : this.#random.pick(running);
  }

  /** Judges the store's own state, whatever clients believe. */
  #inspect(): void {
    const table = ++this.#events % INSPECT_EACH === 0 ? this.#back.table() : null;
    if (table === null) return;
    const found = tableViolations(table);
    if (found.length > 0) this.world.fail(`the lock table is wrong: ${found.join("; ")}`);
  }

  #alive(): Site[] {
    return this.#sites.filter((site) => site.isAlive);
  }

  #start(name: string): void {
    if (this.isQuiet) return;
    const machine = new Machine(this.world, `${name}.${++this.#lives}`, this.plan.drift);
    const site = new Site(machine, this.#back.driverFor(machine), this.plan);
    this.#sites.push(site);
    for (let index = 0; index < this.plan.actors; index++) void new Actor(`${name}${"pqrs"[index]}`, site, this).live();
  }

  #mishap(): void {
    const random = this.#random;
    const { ttlMs, kinds } = this.plan;
    const kind: Mishap = random.pick(kinds);
    const ms = Math.round(random.next() * random.pick([0.1, 0.5, 2]) * ttlMs);
    if (this.#back.mishap(kind, ms)) return;
    const site = this.anySite();
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
        this.#back.died(machine);
        this.world.after(ms, () => this.#start(name));
        return;
      case "redeploy":
        machine.note("closes");
        site.closing = true;
        void site.locks.close();
        return this.#start(name);
      case "cut":
        return this.#cut(machine, ms);
      case "partition":
        // the server starts anew while one who may hold cannot say so
        this.#cut(machine, ttlMs * (0.6 + random.next()));
        this.world.after(random.next() * ttlMs * 0.05, () => this.#back.mishap(random.pick(["crash", "power"]), ms));
        if (random.chance(0.5)) this.world.after(3_000 + random.int(5_000), () => this.#back.mishap("crash", ms));
        return;
      case "reset":
        return this.#back.reset(machine);
      case "wall":
        // a step back that hides a sleep is noticed by the next renewal only
        return machine.stepWall(kinds.includes("sleep") ? ms : random.pick([-1, 1]) * ms);
      case "revoke":
        for (const revoked of this.#back.revoke()) this.revoked.add(revoked);
    }
  }

  #cut(machine: Machine, ms: number): void {
    this.#network.cut.add(machine);
    machine.note(`cut off for ${ms.toFixed(0)} ms`);
    this.world.after(ms, () => this.#network.cut.delete(machine));
  }

  #calm(): void {
    this.world.note("world", "no more trouble");
    this.isQuiet = true;
    this.#network.weather = { ...FAIR, usualMs: Math.min(this.plan.weather.usualMs, FAIR.usualMs) };
    // partitions last as long as they were to last: a lease may be at stake
    if (!this.plan.kinds.includes("partition")) this.#network.cut.clear();
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
    await world.run(world.now + Math.max(2 * plan.ttlMs, 15_000), () => open === 0);
    if (open > 0) world.fail("close() does not settle");
    for (const { machine } of sites)
      if (machine.armed > 0) world.fail(`${machine.name}: a timer is left after close()`);
  }
}
