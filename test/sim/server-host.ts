/** The real server on a machine of the simulated world, over its starts, crashes and clean ends. */

import { Hub } from "../../src/server/hub.ts";
import type { Opened } from "../../src/server/opening.ts";
import { openKeeper } from "../../src/server/opening.ts";
import type { ProcessState } from "../../src/server/session.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import { Machine } from "./machine.ts";
import type { Pipe } from "./pipe.ts";
import { SimDisk } from "./sim-disk.ts";
import type { World } from "./world.ts";

export interface HostOptions {
  readonly drift: number;
  readonly sessionMs: number;
  /** Clients are on this machine, on a Unix socket. */
  readonly local: boolean;
  /** It keeps nothing between its starts. */
  readonly stateless: boolean;
  /** What has become of the process of that name. */
  readonly probe: (name: string) => ProcessState;
}

export class ServerHost {
  readonly #world: World;
  readonly #options: HostOptions;
  readonly #disk: SimDisk;
  readonly #random: SeededRandom;
  machine: Machine;
  hub: Hub | null = null;
  kept: Opened | null = null;
  #pipes: Pipe[] = [];
  #starts = 0;
  #stopping = false;

  constructor(world: World, options: HostOptions) {
    this.#world = world;
    this.#options = options;
    this.#disk = new SimDisk(world);
    this.#random = world.random.fork();
    this.machine = this.#newMachine();
  }

  /** Becomes true when it serves. */
  async start(): Promise<void> {
    const { sessionMs, local, stateless, probe } = this.#options;
    const { machine } = this;
    const log = (message: string, error?: unknown): void => machine.note(`${message} ${error}`);
    const { clock } = machine;
    machine.note("starts");
    const disk = stateless ? null : this.#disk.for(machine);
    const kept = await openKeeper({ clock, disk, sessionMs, remote: !local, probe: (_, name) => probe(name), log });
    if (machine !== this.machine || machine.state === "dead") return;
    this.kept = kept;
    const start = `start${this.#starts}`;
    this.hub = new Hub({ backend: kept.keeper, sessions: kept.sessions, clock, start, version: "0", log });
    machine.note(`serves${kept.keeper.reclaiming ? ", reclaiming" : ""}`);
  }

  /** It is gone from one moment to the next, and starts again after a while. */
  crash(downMs: number, powerLost: boolean): void {
    if (this.machine.state === "dead") return; // it is down already
    this.machine.note(powerLost ? "loses power" : "crashes");
    this.#end(powerLost);
    this.#disk.crash(powerLost);
    this.#startAfter(downMs);
  }

  /** A clean end, and a start after a while. */
  async stop(downMs: number): Promise<void> {
    const { kept, hub, machine } = this;
    if (kept === null || hub === null || this.#stopping) return;
    machine.note("stops");
    this.#stopping = true;
    hub.drain();
    kept.keeper.drain();
    await kept.save();
    if (machine.state === "dead") return;
    machine.note("has stopped");
    this.#end(false);
    this.#startAfter(downMs);
  }

  connect(pipe: Pipe): void {
    const { hub, machine } = this;
    if (hub === null || this.#stopping) return pipe.refused();
    machine.execute(() => {
      this.#pipes.push(pipe);
      pipe.accepted(machine, hub.accept(pipe.stream, { local: this.#options.local, address: "" }));
      if (pipe.client.state === "dead") pipe.endServer(); // it died while it connected
    });
  }

  /** The process of these connections has died. */
  clientDied(client: Machine): void {
    for (const pipe of this.#pipes) if (pipe.client === client) pipe.endServer();
  }

  /** Connections break. */
  reset(client: Machine): void {
    for (const pipe of this.#pipes) if (pipe.client === client) pipe.reset();
  }

  #end(silently: boolean): void {
    this.machine.kill();
    this.hub = null;
    this.kept = null;
    this.#stopping = false;
    for (const pipe of this.#pipes) pipe.serverDied(silently);
    this.#pipes = [];
  }

  #startAfter(ms: number): void {
    this.#world.after(ms, () => {
      this.machine = this.#newMachine();
      void this.start();
    });
  }

  #newMachine(): Machine {
    const { drift, stateless } = this.#options;
    // the clock is all that such a server's tokens rise by
    const machine = new Machine(this.#world, `srv.${++this.#starts}`, stateless ? 0 : drift);
    // a machine that was started anew may have lost the time
    if (this.#starts > 1 && !stateless) machine.stepWall(this.#random.pick([0, 0, -2_000, -100_000]));
    return machine;
  }
}
