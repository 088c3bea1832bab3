/** What stands behind a server's hub: our own table, or any store. */

import type { Clock } from "../clock.ts";
import type { Backend } from "./backend.ts";
import { elect } from "./election.ts";
import type { Log } from "./logging.ts";
import { openKeeper } from "./opening.ts";
import { processState } from "./processes.ts";
import { openRelay } from "./relay.ts";
import type { ServeOptions } from "./serve.ts";
import type { Sessions } from "./session.ts";
import { openState } from "./state.ts";

/** How long a session lasts in silence. */
const SESSION_MS = 30_000;

/** What a server asks of what stands behind it. */
export interface Store {
  readonly backend: Backend;
  readonly sessions: Sessions;
  claims(): number;
  /** After the clients were told. */
  close(): Promise<void>;
}

export interface StoreOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Clients may come over something else than a Unix socket. */
  readonly remote: boolean;
}

/** @throws StateError if the state cannot be used; whatever the driver throws when it is opened */
export async function openStore({ driver, state }: ServeOptions, options: StoreOptions): Promise<Store> {
  const { clock, log, remote } = options;
  if (driver !== undefined) return openRelay({ driver, clock, sessionMs: SESSION_MS, probe: processState, log });
  const disk = state === "none" ? null : await openState(state as string, elect);
  try {
    const opened = await openKeeper({ clock, disk, sessionMs: SESSION_MS, remote, probe: processState, log });
    return {
      backend: opened.keeper,
      sessions: opened.sessions,
      claims: () => opened.keeper.table.entries.size,
      async close() {
        opened.keeper.drain();
        try {
          await opened.save();
        } catch (error) {
          log("the state could not be saved: the next start will ask the clients what they hold", error);
        } finally {
          await disk?.close();
        }
      },
    };
  } catch (error) {
    await disk?.close();
    throw error;
  }
}
