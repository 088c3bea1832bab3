/**
 * The watchdog of a run: a small `sh` process that reads a pipe from the wrapper, the process of `holdfast run`. However the
 * wrapper dies, the pipe ends. Then the watchdog ends the child and all processes below it before the lease can end. Only
 * the watchdog sends signals to processes below the child, so the wrapper uses it for that, too, while both are alive.
 */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import type { Socket } from "node:net";
import { END_LINE } from "../../../server/runs/run-file-format.ts";
import type { RunFile } from "./run-file.ts";

/**
 * The lines that the watchdog reads:
 *   child PID        the child; before this line, the child is found by the token in its environment
 *   lease SECONDS    a dead man's switch: act as on `end GRACE` after this time, unless another `lease` or an `end` arrives
 *   signal NAME      pass this signal on
 *   end SECONDS      TERM now, KILL to the remaining processes after this time (0.000: KILL now), then exit
 *   free             the child has ended: exit, and leave the processes that it left behind alone
 * The end of the pipe means `end GRACE`.
 *
 * Arguments: "group" or "tree" (does the child have its own process group?), GRACE, the token, the run file (run-file.ts;
 * removed when no process of the run is left), the line that is appended to it when a lease has ended without word from the
 * wrapper, and "keep" if the server must still find the file after the run.
 *
 * The watchdog has its own session: no signal of a terminal or to the wrapper's group reaches it. Descriptors 3 and 4 are
 * the keep-session connection and the lock of the run file. A sleep must not inherit them: it would keep the session and
 * the lock after the watchdog has ended.
 */
const WATCHDOG_SCRIPT = `
mode=$1 grace=$2 token=$3 file=$4 ended=$5 keep=$6 pid= timer= silent=

# $*, all processes below them and, in group mode, those of their groups; without zombies
below() {
  if [ -r /proc/self/stat ]; then
    table=$(cat /proc/[0-9]*/stat 2>/dev/null | sed -n 's/^\\([0-9]*\\) (.*) [A-WY] \\([0-9]*\\) \\([0-9]*\\) .*/\\1 \\2 \\3/p')
  else
    table=$(ps -A -o pid= -o ppid= -o pgid=)
  fi
  found=" $* " grown=1
  while [ -n "$grown" ]; do
    grown=
    while read -r one parent group; do
      case $found in *" $one "*) continue ;; esac
      case $found in *" $parent "*) found="$found$one " grown=1; continue ;; esac
      [ "$mode" = group ] || continue
      case $found in *" $group "*) found="$found$one " grown=1 ;; esac
    done <<EOF
$table
EOF
  done
  echo "$found"
}

group_of() {
  if { read -r stat <"/proc/$1/stat"; } 2>/dev/null; then
    set -- \${stat##*) }
    echo "$3"
  else
    echo $(ps -o pgid= -p "$1")
  fi
}

send() { # signal, processes: each receives it once
  name=$1; shift
  [ "$mode" = group ] && kill -s "$name" -- "-$pid" 2>/dev/null
  for one do
    [ "$mode" = group ] && [ "$(group_of "$one")" = "$pid" ] && continue
    kill -s "$name" -- "$one" 2>/dev/null
  done
}

left() { # is any of these alive?
  for one do
    if [ -r /proc/self/stat ]; then
      { read -r stat <"/proc/$one/stat"; } 2>/dev/null || continue
      case \${stat##*) } in [ZX]*) continue ;; esac
      return 0
    fi
    kill -s 0 -- "$one" 2>/dev/null && return 0
  done
  return 1
}

over() {
  if [ -n "$silent" ]; then
    # a stopped wrapper may keep the file lock forever: record in the file that no process works under the lease any more
    [ -n "$pid" ] && [ -e "$file" ] && { printf '%s\\n' "$ended" >>"$file" || rm -f -- "$file"; } 2>/dev/null
  elif [ -z "$keep" ]; then
    # a nested run may have inherited the lock and still be running; then the server removes the file later
    [ -e "$file" ] && exec 4>&- && flock -n "$file" rm -f -- "$file" 2>/dev/null
  fi
  exit 0
}

end() { # seconds until KILL
  if [ -z "$pid" ]; then
    # the wrapper died while it started the child, which may not have executed its program yet
    sleep 0.3
    pid=$(grep -lsFa "HOLDFAST_TOKEN=$token" /proc/[0-9]*/environ | sed 's|[^0-9]||g' | tr '\\n' ' ')
    mode=tree
    [ -n "$pid" ] && [ -n "$token" ] || over
  fi
  # start the clock before the search for processes: on a busy machine the search is slow, and KILL must not be late
  sleep "$1" </dev/null 3>&- 4>&- &
  clock=$!
  all=$(below $pid)
  [ "$1" = 0.000 ] || send TERM $all
  while left $all && kill -s 0 "$clock" 2>/dev/null; do sleep 0.05; done
  kill -s KILL "$clock" 2>/dev/null
  left $all || over
  # STOP them first: the search takes time, and they must neither work nor start further processes meanwhile
  send STOP $all
  send KILL $(below $all)
  # processes that cannot be killed (under sudo) keep the file, and so the lock
  for wait in 1 2 3 4 5 6 7 8 9 10; do
    left $all || over
    sleep 0.1
  done
  while [ -n "$silent" ]; do
    left $all || over
    sleep 1 3>&- 4>&-
  done
  exit 0
}

# a timer that keeps running would hold the file lock and the session, and signal unrelated processes with reused ids
stop_timer() {
  [ -n "$timer" ] && kill -s TERM "$timer" 2>/dev/null
  timer=
}

start_timer() { # seconds until the end; TERM also ends its sleep
  ( sleep "$1" 3>&- 4>&- & nap=$!
    trap 'kill -s KILL "$nap"; exit 0' TERM
    wait "$nap"
    trap - TERM
    silent=yes
    end "$grace" ) </dev/null &
  timer=$!
}

while read -r word value; do
  case $word in lease | end | free) stop_timer ;; esac
  case $word in
    child) pid=$value ;;
    lease) start_timer "$value" ;;
    signal) send "$value" $( [ "$mode" = group ] || below $pid ) ;;
    end) end "$value" ;;
    free) exit 0 ;;
  esac
done
stop_timer
end "$grace"
`;

/** The wrapper's side of the watchdog. */
export interface Watchdog {
  /** Sets the process id of the child. */
  watch(pid: number): void;
  /** The watchdog ends the child after `ms`, unless the wrapper calls this again before. */
  setDeadline(ms: number): void;
  /** Passes a signal to the child and all processes below it. */
  forwardSignal(name: NodeJS.Signals): void;
  /** Sends TERM now and KILL after `ms`; settles when all processes below the child are gone. */
  terminate(ms: number): Promise<void>;
  /**
   * Ends the watchdog, because the child has ended by itself, or another watchdog is armed. Settles when the watchdog is gone.
   * Needed for a dead watchdog, too: its timer may still run.
   */
  dismiss(): Promise<void>;
}

/** The options of a watchdog. */
export interface WatchdogOptions {
  /** Does the child have its own process group? */
  readonly hasOwnGroup: boolean;
  readonly graceMs: number;
  /** Identifies the child by its environment if the wrapper dies while it starts the child. */
  readonly token: string;
  /** The watchdog keeps this connection open until it ends, so that the session lasts as long; see drivers/server/keep-session.ts. */
  readonly keepSessionSocket?: Socket | null;
  /** The watchdog inherits the lock of this file, and removes the file when no process of the run is left. */
  readonly runFile?: RunFile | null;
  /** Called when the watchdog dies without having been asked to end. */
  readonly onDeath: () => void;
}

/**
 * Starts a watchdog.
 * @throws Error (ENOENT) if there is no sh
 */
export async function startWatchdog(options: WatchdogOptions): Promise<Watchdog> {
  const { hasOwnGroup, graceMs, token, keepSessionSocket, runFile, onDeath } = options;
  const args = [hasOwnGroup ? "group" : "tree", formatSeconds(graceMs), token, runFile?.path ?? "", END_LINE.trimEnd()];
  if (runFile?.isKeptByServer === true) args.push("keep");
  const sh = spawn("sh", ["-c", WATCHDOG_SCRIPT, "holdfast-guard", ...args], {
    stdio: ["pipe", "ignore", "ignore", keepSessionSocket ?? "ignore", runFile?.descriptor ?? "ignore"],
    detached: true,
    cwd: "/",
    env: { PATH: "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" },
  });
  let isStopping = false;
  let isGroupKilled = false;
  const exited = new Promise<void>((resolve) => sh.once("exit", () => resolve()));
  await waitUntilStarted(sh);
  try {
    runFile?.addProcess("watchdog", sh.pid as number);
  } catch (error) {
    killGroup(sh);
    throw error;
  }
  sh.once("exit", () => {
    if (!isStopping) onDeath();
  });
  const { stdin } = sh;
  // the "exit" event reports a dead watchdog; without a listener the EPIPE would end the wrapper
  stdin?.on("error", () => undefined);
  const send = (line: string): void => {
    stdin?.write(`${line}\n`);
  };
  return {
    watch: (pid) => send(`child ${pid}`),
    setDeadline: (ms) => send(`lease ${formatSeconds(ms)}`),
    forwardSignal: (name) => send(`signal ${name.slice(3)}`),
    terminate(ms) {
      isStopping = true;
      send(`end ${formatSeconds(ms)}`);
      return exited;
    },
    dismiss() {
      isStopping = true;
      // only once: later the id may belong to another group
      if (!isGroupKilled) killGroup(sh);
      isGroupKilled = true;
      return exited;
    },
  };
}

function waitUntilStarted(child: ChildProcess): Promise<void> {
  if (child.pid !== undefined) return Promise.resolve();
  return new Promise((_, reject) => child.once("error", reject));
}

/**
 * Kills the watchdog and its timer, which have their own process group. If only the shell was killed, its timer still runs.
 * It would end the child at the old deadline, although the lease has been renewed since, and would keep the lock of the
 * run file and the session until then.
 */
function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

function formatSeconds(ms: number): string {
  return (Math.max(ms, 0) / 1_000).toFixed(3);
}
