/** A disk that outlives the server's process: writes pending at a crash may have been written, or not. */

import { decodeRecord, decodeState, encodeRecord, encodeState } from "../../src/server/storage/format.ts";
import type {
  JournalRecord,
  LoadedState,
  SavedSession,
  SavedState,
  Storage,
} from "../../src/server/storage/storage.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import type { EventQueue } from "./event-queue.ts";
import type { SimulatedMachine } from "./simulated-machine.ts";

const MAX_WRITE_MS = 30;

const encodeRecords = (records: readonly JournalRecord[]): string =>
  records.map((journalRecord) => `${encodeRecord(journalRecord)}\n`).join("");

export class SimulatedStorage {
  readonly #events: EventQueue;
  readonly #random: SeededRandom;
  #state: string | null = null;
  #journal = "";
  #sessions: readonly SavedSession[] | null = null;
  /** The start that the sessions are of. */
  #sessionsGeneration = 0;
  #sameBoot = true;
  #fresh = true;
  /** Written, but not yet durable. */
  #pending: (() => void)[] = [];

  constructor(eventQueue: EventQueue) {
    this.#events = eventQueue;
    this.#random = eventQueue.random.fork();
  }

  /** The writing process is gone: some of the last writes have happened, the rest never will. */
  crash(powerLost: boolean): void {
    while (this.#pending.length > 0 && this.#random.chance(0.5)) this.#pending.shift()?.();
    this.#pending = [];
    this.#sameBoot = !powerLost;
    // it was never synced
    if (powerLost) this.#sessions = null;
  }

  /** The disk as a process on that machine sees it. */
  openFor(machine: SimulatedMachine): Storage {
    const storage: Storage = {
      beginRun: async ({ state, journal, sessions }) => {
        this.#sessions = [...sessions];
        // while the state is of an earlier start, this list belongs to no run
        this.#sessionsGeneration = state.generation;
        await storage.rewriteJournal(journal);
        await storage.saveState(state);
      },
      load: () => this.#writeLater(machine, () => {}).then(() => this.#loadState()),
      saveState: (state: SavedState) => {
        const text = encodeState(state, null);
        return this.#writeLater(machine, () => {
          this.#state = text;
          this.#fresh = false;
        });
      },
      appendJournal: (records: readonly JournalRecord[]) => {
        const text = encodeRecords(records);
        return this.#writeLater(machine, () => {
          this.#journal += text;
        });
      },
      rewriteJournal: (records: readonly JournalRecord[]) => {
        const text = encodeRecords(records);
        return this.#writeLater(machine, () => {
          this.#journal = text;
        });
      },
      addSession: (session) => {
        this.#sessions = [...(this.#sessions ?? []).filter(({ id }) => id !== session.id), session];
      },
      removeSession: (session) => {
        this.#sessions = (this.#sessions ?? []).filter(({ id }) => id !== session);
      },
      close: () => Promise.resolve(),
    };
    return storage;
  }

  #loadState(): LoadedState {
    const state = this.#state === null ? null : decodeState(this.#state, "state").saved;
    return {
      state,
      isFirstStart: this.#fresh,
      journal: this.#journal.split("\n").slice(0, -1).map(decodeRecord),
      sessions: this.#sessionsGeneration === state?.generation ? this.#sessions : null,
      isSameBoot: this.#sameBoot,
    };
  }

  #writeLater(machine: SimulatedMachine, apply: () => void): Promise<void> {
    this.#pending.push(apply);
    const ms = this.#random.chance(0.2) ? this.#random.next() * MAX_WRITE_MS : 0.2;
    return new Promise((resolve) => {
      this.#events.after(ms, () => {
        const index = this.#pending.indexOf(apply);
        if (index === -1) return;
        this.#pending.splice(index, 1);
        apply();
        machine.execute(resolve);
      });
    });
  }
}
