/**
 * Keeps a watchdog alive for the duration of a run. A watchdog that was killed is replaced. When the server ends, and with
 * it the keep-session connection of the watchdog, a new watchdog with a connection to the next server replaces the old one.
 * So, on a Unix socket, the lock is kept until the watchdog has ended the child, even if the child has closed the
 * connection that it inherited.
 */

import type { Socket } from "node:net";
import type { KeepSessionSocket } from "../../../drivers/server/keep-session.ts";
import { openKeepSessionSocket } from "../../../drivers/server/keep-session.ts";
import type { Driver } from "../../../spi/driver.ts";
import { CommandError } from "../../errors.ts";
import type { RunFile } from "./run-file.ts";
import type { Watchdog } from "./watchdog.ts";
import { startWatchdog } from "./watchdog.ts";

/** After this many watchdogs have died, no further one is started. */
const MAX_WATCHDOGS = 5;
/** The pause between attempts to connect to the next server. */
const RECONNECT_INTERVAL_MS = 100;

/** The options of all watchdogs of a run. */
export interface SupervisedWatchdogOptions {
  readonly driver: Driver;
  readonly hasOwnGroup: boolean;
  readonly graceMs: number;
  readonly token: string;
  /** An open connection, which stays open until the process ends. Null on a store without keep-session connections. */
  readonly keepSessionSocket: Socket | null;
  /** The record of the run; null if the server does not restore runs. */
  readonly runFile: RunFile | null;
}

/**
 * Starts the first watchdog. Null if there is no sh: then only the keep-session connection of the child keeps the lock.
 * @throws CommandError internal, if there is neither sh nor a keep-session connection
 */
export async function superviseWatchdog({
  driver,
  keepSessionSocket: firstSocket,
  ...options
}: SupervisedWatchdogOptions): Promise<Watchdog | null> {
  let watchedPid: number | null = null;
  /** When the watchdog ends the child unless it is told otherwise. A new watchdog must know it at once: the wrapper may be stopped at any time. */
  let leaseEndsAt: number | null = null;
  let watchdogCount = 1;
  let keepSessionSocket = firstSocket;
  let isStopped = false;

  const start = (): Promise<Watchdog> => startWatchdog({ ...options, keepSessionSocket, onDeath: replace });

  function replace(): void {
    const dead = current;
    // Only the lease monitor of the wrapper is left. The dead watchdog's timer must not end a command whose lease was renewed.
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

  /** The server has ended: open a keep-session connection to the next one. */
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
    // nothing arrives on it, but the socket reports its end only while it is being read
    socket.resume().unref();
  }

  let current: Watchdog;
  try {
    current = await start();
  } catch (cause) {
    if (cause instanceof CommandError) throw cause;
    if (firstSocket !== null) return null;
    throw new CommandError("internal", "could not start sh, which runs the watchdog; nothing was run", {
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
