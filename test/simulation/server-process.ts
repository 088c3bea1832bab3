/** The real server on a machine of the simulated world, over its starts, crashes and clean ends. */

import { ALLOW_ALL } from "../../src/auth/access-control.ts";
import type { LockTable } from "../../src/lock-table/table.ts";
import type { ProcessState } from "../../src/os/process-info.ts";
import type { ServerParts } from "../../src/server/compose.ts";
import { composeServer } from "../../src/server/compose.ts";
import { DEFAULT_LIMITS } from "../../src/server/limits.ts";
import type { LocalBackend } from "../../src/server/local/local-backend.ts";
import { NO_COMMAND_RUNS } from "../../src/server/runs/command-run.ts";
import type { LockService } from "../../src/server/service.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import type { EventQueue } from "./event-queue.ts";
import type { SimulatedConnection } from "./simulated-connection.ts";
import { SimulatedMachine } from "./simulated-machine.ts";
import { SimulatedStorage } from "./simulated-storage.ts";

export interface ServerProcessOptions {
  readonly drift: number;
  readonly sessionMs: number;
  /** Clients are on this machine, on a Unix socket. */
  readonly isLocal: boolean;
  /** It keeps nothing between its starts. */
  readonly isStateless: boolean;
  /** The state of the process of that name. */
  readonly probe: (name: string) => ProcessState;
}

export class ServerProcess {
  readonly #events: EventQueue;
  readonly #options: ServerProcessOptions;
  readonly #storage: SimulatedStorage;
  readonly #random: SeededRandom;
  machine: SimulatedMachine;
  parts: ServerParts | null = null;
  #connections: SimulatedConnection[] = [];
  #startCount = 0;
  #stopping = false;

  constructor(eventQueue: EventQueue, options: ServerProcessOptions) {
    this.#events = eventQueue;
    this.#options = options;
    this.#storage = new SimulatedStorage(eventQueue);
    this.#random = eventQueue.random.fork();
    this.machine = this.#newMachine();
  }

  /** Becomes true when it serves. */
  async start(): Promise<void> {
    const { sessionMs, isLocal, isStateless, probe } = this.#options;
    const { machine } = this;
    const log = (message: string, error?: unknown): void => machine.note(`${message} ${error}`);
    machine.note("starts");
    const storage = isStateless ? null : this.#storage.openFor(machine);
    const parts = await composeServer({
      clock: machine.clock,
      log,
      runId: `start${this.#startCount}`,
      storage,
      firstStart: false,
      commandRuns: NO_COMMAND_RUNS,
      access: ALLOW_ALL,
      limits: DEFAULT_LIMITS,
      remote: !isLocal,
      sessionMs,
      probe: (_, name) => probe(name),
      runDirectory: null,
    });
    if (machine !== this.machine || machine.state === "dead") return;
    this.parts = parts;
    machine.note(`serves${parts.backend.recoveryRemainingMs() > 0 ? ", reclaiming" : ""}`);
  }

  get service(): LockService | null {
    return this.parts?.service ?? null;
  }

  /** The lock table of the running server. */
  get table(): LockTable | null {
    return (this.parts?.backend as LocalBackend | undefined)?.table ?? null;
  }

  /** It crashes, and starts again after a while. */
  crash(downMs: number, powerLost: boolean): void {
    if (this.machine.state === "dead") return; // already down
    this.machine.note(powerLost ? "loses power" : "crashes");
    this.#end(powerLost);
    this.#storage.crash(powerLost);
    this.#startAfter(downMs);
  }

  /** A clean stop, and a start after a while. */
  async stop(downMs: number): Promise<void> {
    const { parts, machine } = this;
    if (parts === null || this.#stopping) return;
    machine.note("stops");
    this.#stopping = true;
    parts.service.drain();
    await parts.closeBackend();
    if (machine.state === "dead") return;
    machine.note("has stopped");
    this.#end(false);
    this.#startAfter(downMs);
  }

  connect(connection: SimulatedConnection): void {
    const { service, machine } = this;
    if (service === null || this.#stopping) return connection.refuse();
    machine.execute(() => {
      this.#connections.push(connection);
      connection.accept(machine, service.accept(connection.stream, { isLocal: this.#options.isLocal, address: "" }));
      if (connection.client.state === "dead") connection.closeByClient(); // it crashed while it connected
    });
  }

  /** The process of these connections has died. */
  clientDied(client: SimulatedMachine): void {
    for (const connection of this.#connections) if (connection.client === client) connection.closeByClient();
  }

  /** Connections break. */
  reset(client: SimulatedMachine): void {
    for (const connection of this.#connections) if (connection.client === client) connection.reset();
  }

  #end(silently: boolean): void {
    this.machine.kill();
    this.parts = null;
    this.#stopping = false;
    for (const connection of this.#connections) connection.closeByServer(silently);
    this.#connections = [];
  }

  #startAfter(ms: number): void {
    this.#events.after(ms, () => {
      this.machine = this.#newMachine();
      void this.start();
    });
  }

  #newMachine(): SimulatedMachine {
    const { drift, isStateless } = this.#options;
    // the clock is all that such a server's tokens rise by
    const machine = new SimulatedMachine(this.#events, `srv.${++this.#startCount}`, isStateless ? 0 : drift);
    // a restarted machine may have lost the time
    if (this.#startCount > 1 && !isStateless) machine.stepWallClock(this.#random.pick([0, 0, -2_000, -100_000]));
    return machine;
  }
}
