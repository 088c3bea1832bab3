/**
 * The guard of a run, over the whole run: one that was killed is replaced, and one whose tether's server has gone is
 * relieved by one with a tether to the next server. So, on a Unix socket, the lock is kept until the guard has ended the
 * child, also when the child has closed the tether it inherited.
 */

import type { Socket } from "node:net";
import type { Tether } from "../drivers/server/tether.ts";
import { openTether } from "../drivers/server/tether.ts";
import type { Driver } from "../spi/driver.ts";
import { CommandError } from "./failure.ts";
import type { Guard } from "./guard.ts";
import { startGuard } from "./guard.ts";
import type { RunFile } from "./run-file.ts";

/** A guard that dies again and again cannot be had here. */
const MOST_GUARDS = 5;
/** How often the next server is looked for. */
const LOOK_MS = 100;

/** What the guards of a run must know. */
export interface ReliefOptions {
  readonly driver: Driver;
  readonly ownGroup: boolean;
  readonly graceMs: number;
  readonly token: string;
  /** Open; it stays open here as long as the process lives. Null on a store without tethers. */
  readonly tether: Socket | null;
  /** What the run has written down; null where its server restores nothing. */
  readonly file: RunFile | null;
}

/**
 * Starts the first guard. Null where there is no sh and the tether of the child alone must do.
 * @throws CommandError internal, if there is neither sh nor tether
 */
export async function guardWithRelief({ driver, tether: first, ...options }: ReliefOptions): Promise<Guard | null> {
  let guarded: number | null = null;
  /** When the child is to be ended if nothing is heard: the next guard must know it before the wrapper can fall silent. */
  let leaseEndsAt: number | null = null;
  let guards = 1;
  let tether = first;
  let over = false;

  const start = (): Promise<Guard> => startGuard({ ...options, tether, onDeath: replace });

  function replace(): void {
    if (++guards > MOST_GUARDS) return;
    // where no process can be started the watch of the wrapper itself is left
    start().then(take, () => undefined);
  }

  function take(next: Guard): void {
    if (over) return void next.free();
    current = next;
    if (guarded !== null) next.child(guarded);
    if (leaseEndsAt !== null) next.lease(leaseEndsAt - performance.now());
  }

  /** Its server has gone: the next one must hear of the tether, too. */
  function relieve(): void {
    tether = null;
    if (over) return;
    openTether(driver).then(relieveWith, () => setTimeout(relieve, LOOK_MS).unref());
  }

  function relieveWith(next: Tether | null): void {
    if (next === null) return;
    tether = next.socket;
    watch(next.socket);
    const before = current;
    start().then(
      (fresh) => {
        take(fresh);
        if (current !== before) void before.free();
      },
      () => undefined,
    );
  }

  function watch(socket: Socket): void {
    socket.once("close", relieve);
    // nothing is sent on it, but only who reads sees its end
    socket.resume().unref();
  }

  let current: Guard;
  try {
    current = await start();
  } catch (cause) {
    if (cause instanceof CommandError) throw cause;
    if (first !== null) return null;
    throw new CommandError("internal", "sh, which guards the command, could not be started; nothing was run", {
      cause,
    });
  }
  if (first !== null) watch(first);
  return {
    child(pid) {
      guarded = pid;
      current.child(pid);
    },
    lease(ms) {
      leaseEndsAt = performance.now() + ms;
      current.lease(ms);
    },
    signal: (name) => current.signal(name),
    end(ms) {
      over = true;
      return current.end(ms);
    },
    free() {
      over = true;
      return current.free();
    },
  };
}
