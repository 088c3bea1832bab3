/**
 * The guard of a run, over the whole run: one that was killed is replaced, and one whose tether's server has gone is
 * relieved by one with a tether to the next server. So, on a Unix socket, the lock is kept until the guard has ended the
 * child, also when the child has closed the tether it inherited.
 */

import type { Socket } from "node:net";
import type { KeepSessionSocket } from "../../../drivers/server/keep-session.ts";
import { openKeepSessionSocket } from "../../../drivers/server/keep-session.ts";
import type { Driver } from "../../../spi/driver.ts";
import { CommandError } from "../../errors.ts";
import type { RunFile } from "./run-file.ts";
import type { Watchdog } from "./watchdog.ts";
import { startWatchdog } from "./watchdog.ts";

/** A guard that dies again and again cannot be had here. */
const MAX_WATCHDOGS = 5;
/** How often the next server is looked for. */
const RECONNECT_INTERVAL_MS = 100;

/** What the guards of a run must know. */
export interface SupervisedWatchdogOptions {
  readonly driver: Driver;
  readonly hasOwnGroup: boolean;
  readonly graceMs: number;
  readonly token: string;
  /** Open; it stays open here as long as the process lives. Null on a store without tethers. */
  readonly keepSessionSocket: Socket | null;
  /** What the run has written down; null where its server restores nothing. */
  readonly runFile: RunFile | null;
}

/**
 * Starts the first guard. Null where there is no sh and the tether of the child alone must do.
 * @throws CommandError internal, if there is neither sh nor tether
 */
export async function superviseWatchdog({
  driver,
  keepSessionSocket: firstSocket,
  ...options
}: SupervisedWatchdogOptions): Promise<Watchdog | null> {
  let watchedPid: number | null = null;
  /** When the child is to be ended if nothing is heard: the next guard must know it before the wrapper can fall silent. */
  let leaseEndsAt: number | null = null;
  let watchdogCount = 1;
  let keepSessionSocket = firstSocket;
  let isStopped = false;

  const start = (): Promise<Watchdog> => startWatchdog({ ...options, keepSessionSocket, onDeath: replace });

  function replace(): void {
    const dead = current;
    // the watch of the wrapper itself is left, and the dead one's timer must not end a command whose lease was renewed
    const giveUp = (): void => void dead.dismiss();
    if (++watchdogCount > MAX_WATCHDOGS) return giveUp();
    start().then(adopt, giveUp);
  }

  /** Invariant: all but the current one are dismissed, each when the next one is armed, so that one timer runs at a time. */
  function adopt(next: Watchdog): void {
    if (isStopped) return void next.dismiss();
    const previous = current;
    current = next;
    if (watchedPid !== null) next.watch(watchedPid);
    if (leaseEndsAt !== null) next.setDeadline(leaseEndsAt - performance.now());
    void previous.dismiss();
  }

  /** Its server has gone: the next one must hear of the tether, too. */
  function reconnect(): void {
    keepSessionSocket = null;
    if (isStopped) return;
    openKeepSessionSocket(driver).then(replaceWith, () => setTimeout(reconnect, RECONNECT_INTERVAL_MS).unref());
  }

  function replaceWith(next: KeepSessionSocket | null): void {
    if (next === null) return;
    keepSessionSocket = next.socket;
    reconnectOnClose(next.socket);
    start().then(adopt, () => undefined);
  }

  function reconnectOnClose(socket: Socket): void {
    socket.once("close", reconnect);
    // nothing is sent on it, but only who reads sees its end
    socket.resume().unref();
  }

  let current: Watchdog;
  try {
    current = await start();
  } catch (cause) {
    if (cause instanceof CommandError) throw cause;
    if (firstSocket !== null) return null;
    throw new CommandError("internal", "sh, which guards the command, could not be started; nothing was run", {
      cause,
    });
  }
  if (firstSocket !== null) reconnectOnClose(firstSocket);
  return {
    watch(pid) {
      watchedPid = pid;
      current.watch(pid);
    },
    setDeadline(ms) {
      leaseEndsAt = performance.now() + ms;
      current.setDeadline(ms);
    },
    forwardSignal: (name) => current.forwardSignal(name),
    terminate(ms) {
      isStopped = true;
      return current.terminate(ms);
    },
    dismiss() {
      isStopped = true;
      return current.dismiss();
    },
  };
}
