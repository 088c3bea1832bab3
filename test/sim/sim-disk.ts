/** A disk that outlives the server's process: what was not settled when it died may have been written, or not. */

import type { Disk, Found, JournalRecord, SavedSession, SavedState } from "../../src/server/disk.ts";
import { recordOf, recordText, stateOf, stateText } from "../../src/server/journal.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import type { Machine } from "./machine.ts";
import type { World } from "./world.ts";

const SLOWEST_MS = 30;

const textOf = (records: readonly JournalRecord[]): string => records.map((one) => `${recordText(one)}\n`).join("");

export class SimDisk {
  readonly #world: World;
  readonly #random: SeededRandom;
  #state: string | null = null;
  #journal = "";
  #sessions: readonly SavedSession[] | null = null;
  /** The start that the sessions are of. */
  #sessionsOf = 0;
  #sameBoot = true;
  #fresh = true;
  /** Written, but not yet durable. */
  #pending: (() => void)[] = [];

  constructor(world: World) {
    this.#world = world;
    this.#random = world.random.fork();
  }

  /** The process that wrote is gone: some of the last writes have happened, the rest never will. */
  crash(powerLost: boolean): void {
    while (this.#pending.length > 0 && this.#random.chance(0.5)) this.#pending.shift()?.();
    this.#pending = [];
    this.#sameBoot = !powerLost;
    // it was never synced
    if (powerLost) this.#sessions = null;
  }

  /** The disk as a process on that machine sees it. */
  for(machine: Machine): Disk {
    const disk: Disk = {
      begin: async ({ state, journal, sessions }) => {
        this.#sessions = [...sessions];
        // as long as the state is of an earlier start, this list is nobody's
        this.#sessionsOf = state.generation;
        await disk.rewrite(journal);
        await disk.save(state);
      },
      load: () => this.#later(machine, () => {}).then(() => this.#found()),
      save: (state: SavedState) => {
        const text = stateText(state, null);
        return this.#later(machine, () => {
          this.#state = text;
          this.#fresh = false;
        });
      },
      append: (records: readonly JournalRecord[]) => {
        const text = textOf(records);
        return this.#later(machine, () => {
          this.#journal += text;
        });
      },
      rewrite: (records: readonly JournalRecord[]) => {
        const text = textOf(records);
        return this.#later(machine, () => {
          this.#journal = text;
        });
      },
      note: (session) => {
        this.#sessions = [...(this.#sessions ?? []).filter(({ id }) => id !== session.id), session];
      },
      unnote: (gone) => {
        this.#sessions = (this.#sessions ?? []).filter(({ id }) => id !== gone);
      },
      close: () => Promise.resolve(),
    };
    return disk;
  }

  #found(): Found {
    const state = this.#state === null ? null : stateOf(this.#state, "state").saved;
    return {
      state,
      fresh: this.#fresh,
      journal: this.#journal.split("\n").slice(0, -1).map(recordOf),
      sessions: this.#sessionsOf === state?.generation ? this.#sessions : null,
      sameBoot: this.#sameBoot,
    };
  }

  #later(machine: Machine, apply: () => void): Promise<void> {
    this.#pending.push(apply);
    const ms = this.#random.chance(0.2) ? this.#random.next() * SLOWEST_MS : 0.2;
    return new Promise((resolve) => {
      this.#world.after(ms, () => {
        const at = this.#pending.indexOf(apply);
        if (at === -1) return;
        this.#pending.splice(at, 1);
        apply();
        machine.execute(resolve);
      });
    });
  }
}
