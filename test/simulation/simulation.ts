/** One seed: clients and their users under faults, and the invariants that must hold afterwards. */

import type { LockTable } from "../../src/lock-table/table.ts";
import type { ClaimId } from "../../src/spi/driver.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import { findTableViolations } from "../support/stores/table-inspector.ts";
import { ClientProcess } from "./client-process.ts";
import type { EventQueue } from "./event-queue.ts";
import { InvariantChecker } from "./invariant-checker.ts";
import type { Fault, Scenario } from "./scenario.ts";
import { generateScenario } from "./scenario.ts";
import { createServerStore } from "./server-store.ts";
import { SimulatedMachine } from "./simulated-machine.ts";
import { GOOD_CONDITIONS, SimulatedNetwork } from "./simulated-network.ts";
import type { StoreUnderTest } from "./store-under-test.ts";
import { createTableOverRpc } from "./table-over-rpc.ts";
import type { SimulationContext } from "./workload.ts";
import { LockUser } from "./workload.ts";

/** After the faults every waiter is served within this many leases, or this time if it is longer. */
const CALM_LEASES = 100;
const CALM_MS = 200_000;

/** How long a lock that is not used may block others, under all faults: this many leases, and this time. */
const IDLE_BLOCK_LEASES = 2.2;
const IDLE_BLOCK_MS = 1_600;
/** And without faults, whatever recalls are lost: its renewal after a third of its lease says that others wait. */
const CALM_BLOCK_LEASES = 0.4;
const CALM_BLOCK_MS = 1_500;

/** The table is checked after one event in this number: a check after each would take as long as the rest. */
const INSPECT_INTERVAL = 4;

export class Simulation implements SimulationContext {
  readonly events: EventQueue;
  readonly scenario: Scenario;
  readonly checker: InvariantChecker;
  readonly revoked: Set<string> = new Set();
  isCalm = false;
  readonly #random: SeededRandom;
  readonly #network: SimulatedNetwork;
  readonly #store: StoreUnderTest;
  readonly #clients: ClientProcess[] = [];
  #clientCount = 0;
  #events = 0;
  /** Since when each idle claim has blocked others. */
  #blockingSince = new Map<ClaimId, number>();
  /** When the faults ended. */
  #calmAt = Number.POSITIVE_INFINITY;

  constructor(events: EventQueue) {
    this.events = events;
    this.#random = events.random.fork();
    const random = this.#random;
    this.scenario = generateScenario(random, events.extrasRandom, events.recallRandom);
    this.checker = new InvariantChecker(events, () => this.#livingClients());
    this.#network = new SimulatedNetwork(events, this.scenario.weather);
    const set = { events, scenario: this.scenario, checker: this.checker, network: this.#network, random };
    this.#store = this.scenario.store === "table" ? createTableOverRpc(set) : createServerStore(set);
    events.note("PLAN", JSON.stringify(this.scenario));
    events.check = () => {
      this.checker.check();
      this.#inspect();
    };
    for (let index = 0; index < this.scenario.clients; index++) this.#startClient(`c${index}`);
    for (let index = 0; index < this.scenario.mishaps; index++) {
      events.schedule(random.next() * this.scenario.troubleMs, () => this.#injectFault());
    }
  }

  async run(): Promise<void> {
    const { events, scenario } = this;
    await events.run(scenario.troubleMs);
    this.#endFaults();
    const isDone = (): boolean => this.#livingClients().every((client) => client.activeUsers === 0);
    await events.run(events.now + Math.max(CALM_LEASES * scenario.ttlMs, CALM_MS), isDone);
    if (events.failure === null && !isDone()) events.fail("a request waits in vain, although all trouble is over");
    await events.run(events.now + Math.max(2 * scenario.ttlMs, CALM_MS) + scenario.cacheMs, () =>
      this.#livingClients().every((client) => client.findLeftovers() === ""),
    );
    for (const client of this.#livingClients()) {
      if (client.findLeftovers() !== "") events.fail(`${client.machine.name} has left over: ${client.findLeftovers()}`);
    }
    await this.#closeClient();
    if (events.failure !== null) return;
    await events.run(events.now + this.#store.settleMs);
    const leftovers = this.#store.findLeftovers();
    if (leftovers !== "") events.fail(`the store keeps ${leftovers}`);
  }

  /** What a killed process would have lost. */
  end(): void {
    for (const { client } of this.#clients) client.flowHolds.close();
  }

  pickClient(): ClientProcess | null {
    const running = this.#livingClients().filter(({ machine }) => machine.state === "running");
    return running.length === 0 ? null : this.#random.pick(running);
  }

  /** Checks the store's own state, whatever the clients' view. */
  #inspect(): void {
    const table = ++this.#events % INSPECT_INTERVAL === 0 ? this.#store.table() : null;
    if (table === null) return;
    const violations = findTableViolations(table);
    if (violations.length > 0) this.events.fail(`the lock table is wrong: ${violations.join("; ")}`);
    if (this.scenario.store === "table") this.#inspectIdle(table);
  }

  /** A lock that its client does not use blocks others for a bounded time, whichever recalls are lost. */
  #inspectIdle(table: LockTable): void {
    const blocking = new Map<ClaimId, number>();
    for (const { client, machine } of this.#livingClients()) {
      for (const { activeClaim } of client.context?.cachedLocks.listIdle() ?? []) {
        const { id, ttlMs } = activeClaim.claim;
        const record = table.records.get(id);
        const isWanted = record?.entries.some(({ queue }) => queue.lastAdmitted !== queue.entries.last) ?? false;
        if (!isWanted || record?.isHeld !== true) continue;
        const since = this.#blockingSince.get(id) ?? this.events.now;
        blocking.set(id, since);
        const calmSince = machine.state === "running" ? Math.max(since, this.#calmAt) : this.events.now;
        const isLate =
          this.events.now - since > IDLE_BLOCK_LEASES * Number(ttlMs) + IDLE_BLOCK_MS ||
          this.events.now - calmSince > CALM_BLOCK_LEASES * Number(ttlMs) + CALM_BLOCK_MS;
        if (isLate)
          this.events.fail(
            `${this.checker.claimName(id)} is not used, and has blocked others since ${since.toFixed(0)}`,
          );
      }
    }
    this.#blockingSince = blocking;
  }

  #livingClients(): ClientProcess[] {
    return this.#clients.filter((client) => client.isAlive);
  }

  #startClient(name: string): void {
    if (this.isCalm) return;
    const machine = new SimulatedMachine(this.events, `${name}.${++this.#clientCount}`, this.scenario.drift);
    const client = new ClientProcess(machine, this.#store.createDriver(machine), this.scenario);
    this.#clients.push(client);
    for (let index = 0; index < this.scenario.actors; index++)
      void new LockUser(`${name}${"pqrs"[index]}`, client, this).run();
  }

  #injectFault(): void {
    const random = this.#random;
    const { ttlMs, kinds } = this.scenario;
    const kind: Fault = random.pick(kinds);
    const ms = Math.round(random.next() * random.pick([0.1, 0.5, 2]) * ttlMs);
    if (this.#store.injectFault(kind, ms)) return;
    const client = this.pickClient();
    if (client === null) return;
    const { machine } = client;
    const name = machine.name.split(".")[0] as string;
    switch (kind) {
      case "pause":
        return machine.pause(ms);
      case "sleep":
        return machine.pause(300 + ms, true);
      case "kill":
        machine.kill();
        this.#store.clientKilled(machine);
        this.events.after(ms, () => this.#startClient(name));
        return;
      case "redeploy":
        machine.note("closes");
        client.isClosing = true;
        void client.locks.close();
        return this.#startClient(name);
      case "cut":
        return this.#partition(machine, ms);
      case "partition":
        // the server starts again while a possible holder cannot report
        this.#partition(machine, ttlMs * (0.6 + random.next()));
        this.events.after(random.next() * ttlMs * 0.05, () =>
          this.#store.injectFault(random.pick(["crash", "power"]), ms),
        );
        if (random.chance(0.5))
          this.events.after(3_000 + random.int(5_000), () => this.#store.injectFault("crash", ms));
        return;
      case "reset":
        return this.#store.reset(machine);
      case "wall":
        // a step back that hides a sleep is noticed by the next renewal only
        return machine.stepWallClock(kinds.includes("sleep") ? ms : random.pick([-1, 1]) * ms);
      case "revoke":
        for (const revokedName of this.#store.revoke()) this.revoked.add(revokedName);
    }
  }

  #partition(machine: SimulatedMachine, ms: number): void {
    this.#network.partitioned.add(machine);
    machine.note(`cut off for ${ms.toFixed(0)} ms`);
    this.events.after(ms, () => this.#network.partitioned.delete(machine));
  }

  #endFaults(): void {
    this.events.note("world", "no more trouble");
    this.isCalm = true;
    this.#calmAt = this.events.now;
    this.#network.conditions = {
      ...GOOD_CONDITIONS,
      usualMs: Math.min(this.scenario.weather.usualMs, GOOD_CONDITIONS.usualMs),
    };
    // partitions last their planned time: a lease may be at stake
    if (!this.scenario.kinds.includes("partition")) this.#network.partitioned.clear();
  }

  async #closeClient(): Promise<void> {
    const { events, scenario } = this;
    if (events.failure !== null) return;
    const clients = this.#livingClients();
    let open = clients.length;
    for (const client of clients) {
      client.isClosing = true;
      void client.locks.close().then(() => open--);
    }
    await events.run(events.now + Math.max(2 * scenario.ttlMs, 15_000), () => open === 0);
    if (open > 0) events.fail("close() does not settle");
    for (const { machine } of clients)
      if (machine.armedTimers > 0) events.fail(`${machine.name}: a timer is left after close()`);
  }
}
