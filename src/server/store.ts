/** What stands behind a server's hub: our own table, or any store. */

import type { Clock } from "../clock.ts";
import type { Driver } from "../spi/driver.ts";
import type { Backend } from "./backend.ts";
import { elect } from "./election.ts";
import { StateError } from "./files.ts";
import type { ServerLimits } from "./limits.ts";
import type { Log } from "./logging.ts";
import type { Tally } from "./metrics.ts";
import type { Opened } from "./opening.ts";
import { openKeeper } from "./opening.ts";
import { processState } from "./processes.ts";
import type { Record } from "./record.ts";
import { openRelay } from "./relay.ts";
import { openRuns } from "./run-files.ts";
import { NO_RUNS } from "./run-life.ts";
import type { ServeOptions } from "./serve.ts";
import type { Sessions } from "./session.ts";
import type { StateDisk } from "./state.ts";
import { openState } from "./state.ts";

/** How long a session lasts in silence. */
const SESSION_MS = 30_000;

/** What a server asks of what stands behind it. */
export interface Store {
  readonly backend: Backend;
  readonly sessions: Sessions;
  claims(): number;
  /** Why what is new cannot be granted, as far as the last attempt showed; null: nothing is known. */
  trouble(): string | null;
  /** Why the server must not go on: others may use its state by now. Null: it may. */
  lost(): string | null;
  /** After the clients were told. @throws StateError if the state could not be saved; all is let go of nevertheless */
  close(): Promise<void>;
}

export interface StoreOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Clients may come over something else than a Unix socket. */
  readonly remote: boolean;
  readonly limits: ServerLimits;
  readonly record: Record;
  /** The folder with the files of runs; null: there are none. */
  readonly runsIn: string | null;
  /** Told of every durable write, and whether it was done. */
  readonly wrote: Tally["wrote"];
}

/** @throws StateError if the state cannot be used; whatever the driver throws when it is opened */
export async function openStore({ driver, state, firstStart }: ServeOptions, options: StoreOptions): Promise<Store> {
  const { wrote, runsIn, ...common } = options;
  if (driver !== undefined) return relayed(driver, common);
  const { log } = options;
  const first = firstStart === undefined ? {} : { firstStart };
  const told = { sessionMs: SESSION_MS, probe: processState, ...common, ...first };
  const open = async (disk: WatchedDisk | null): Promise<Store> => {
    const runs = runsIn === null ? NO_RUNS : await openRuns(runsIn, log);
    return kept(await openKeeper({ ...told, disk, runs }), disk);
  };
  if (state === "none") return open(null);
  const folder = await openState(state as string, {
    takeLock: elect,
    log: (message) => log(message, undefined, { level: "warn" }),
    ...first,
  });
  const disk = watched(folder, wrote, options);
  try {
    return await open(disk);
  } catch (error) {
    await disk.close();
    throw error;
  }
}

async function relayed(driver: Driver, options: Omit<StoreOptions, "wrote" | "runsIn">): Promise<Store> {
  return openRelay({ driver, sessionMs: SESSION_MS, probe: processState, ...options });
}

function kept({ keeper, sessions, save }: Opened, disk: WatchedDisk | null): Store {
  return {
    backend: keeper,
    sessions,
    claims: () => keeper.table.entries.size,
    trouble: () => disk?.trouble() ?? null,
    lost: () => disk?.lost() ?? null,
    async close() {
      keeper.drain();
      try {
        await save();
      } catch (error) {
        throw new StateError("the state could not be saved: the next start will ask the clients what they hold", error);
      } finally {
        await disk?.close();
      }
    },
  };
}

interface WatchedDisk extends StateDisk {
  /** What is wrong with durable writes: the last one of a kind failed, or one hangs; null: nothing. */
  trouble(): string | null;
}

const UNWRITTEN = "the state cannot be written: what needs a write is not granted";
const HUNG = "the disk does not answer: what needs a write is not granted";
/** A write that takes longer than this hangs, as far as anybody can tell. */
const HANGS_MS = 5_000;

/**
 * Tells of durable writes, and remembers whether the last one of each kind was done. The log has the first one that failed,
 * and that all are done again: in between there may be one a second, on a disk that has no room for them.
 */
function watched(disk: StateDisk, wrote: Tally["wrote"], { log, clock }: StoreOptions): WatchedDisk {
  const failed = { state: false, journal: false };
  const fails = (): boolean => failed.state || failed.journal;
  /** When the write under way of each kind began: there is one at a time. */
  const begun = { state: Number.POSITIVE_INFINITY, journal: Number.POSITIVE_INFINITY };
  const hangs = (): boolean => Math.min(begun.state, begun.journal) + HANGS_MS <= clock.now();
  async function told<T>(what: "journal" | "state", write: Promise<T>): Promise<T> {
    const before = fails();
    begun[what] = clock.now();
    try {
      const done = await write;
      failed[what] = false;
      if (before && !fails()) log("the state can be written again");
      return done;
    } catch (error) {
      failed[what] = true;
      if (!before) log(UNWRITTEN, error);
      throw error;
    } finally {
      begun[what] = Number.POSITIVE_INFINITY;
      wrote(what, !failed[what]);
    }
  }
  return {
    load: () => disk.load(),
    begin: (start) => disk.begin(start),
    save: (state) => told("state", disk.save(state)),
    append: (records) => told("journal", disk.append(records)),
    rewrite: (records) => told("journal", disk.rewrite(records)),
    note: (session) => disk.note(session),
    unnote: (id) => disk.unnote(id),
    lost: () => disk.lost(),
    close: () => disk.close(),
    trouble: () => (fails() ? UNWRITTEN : hangs() ? HUNG : null),
  };
}
