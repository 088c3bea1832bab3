/**
 * The guard of a run: a small `sh` process that reads a pipe from the wrapper. When the wrapper vanishes, however it was
 * killed, the pipe ends, and the guard ends the child and everything below it before the lease can. It is the one place
 * that sends signals to more than the child alone, so it also does so for a living wrapper.
 */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import type { Socket } from "node:net";
import { END_LINE } from "../../../server/runs/run-file-format.ts";
import type { RunFile } from "./run-file.ts";

/**
 * Lines the guard takes:
 *   child PID        whom to guard; without it, whoever has our token in its environment
 *   lease SECONDS    a switch for dead men: the same as `end GRACE`, unless another `lease` or an `end` comes before
 *   signal NAME      pass this signal on
 *   end SECONDS      TERM now, KILL after so many seconds to whoever is left (0.000: KILL now); then the guard has ended
 *   free             the child has ended: whatever it left behind is not ours
 * and the end of the pipe is `end GRACE`. Arguments: group or tree (has the child a process group of its own?), GRACE,
 * the token, the run's file (cli/commands/run/run-file.ts), which goes when nothing of the run is left, the line that is added to it
 * when a lease has run out in silence, and "keep" where its server is to find the file even so. In its own session, so no
 * signal of a terminal or to the wrapper's group reaches it.
 * Descriptors 3 and 4 are the tether and the file's lock: a sleep must not keep them when its time does not matter any more.
 */
const WATCHDOG_SCRIPT = `
mode=$1 grace=$2 token=$3 file=$4 ended=$5 keep=$6 pid= timer= silent=

# $*, every process below them and, in group mode, of their groups; not the dead whom nobody has reaped yet
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

send() { # signal, processes: each gets it once
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
    # the wrapper, which was stopped, may hold the lock for ever: the file says that nothing works under the lease any more
    [ -n "$pid" ] && [ -e "$file" ] && { printf '%s\\n' "$ended" >>"$file" || rm -f -- "$file"; } 2>/dev/null
  elif [ -z "$keep" ]; then
    # a run inside this one may have inherited the lock, and goes on; then its server looks after the file
    [ -e "$file" ] && exec 4>&- && flock -n "$file" rm -f -- "$file" 2>/dev/null
  fi
  exit 0
}

end() { # seconds until KILL
  if [ -z "$pid" ]; then
    # the wrapper died while it started the child, which may be on its way to its program
    sleep 0.3
    pid=$(grep -lsFa "HOLDFAST_TOKEN=$token" /proc/[0-9]*/environ | sed 's|[^0-9]||g' | tr '\\n' ' ')
    mode=tree
    [ -n "$pid" ] && [ -n "$token" ] || over
  fi
  # the time runs from here: looking for processes takes long on a busy machine, and KILL must not be late
  sleep "$1" </dev/null 3>&- 4>&- &
  clock=$!
  all=$(below $pid)
  [ "$1" = 0.000 ] || send TERM $all
  while left $all && kill -s 0 "$clock" 2>/dev/null; do sleep 0.05; done
  kill -s KILL "$clock" 2>/dev/null
  left $all || over
  # stopped at once, so that the search is neither late nor misses whom they start meanwhile
  send STOP $all
  send KILL $(below $all)
  # what cannot be killed (as under sudo) keeps the file, and with it the lock
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

# one that goes on would hold the run's file and connection, and send signals to whoever has the process ids by then
stop_timer() {
  [ -n "$timer" ] && kill -s TERM "$timer" 2>/dev/null
  timer=
}

start_timer() { # seconds until the end; its sleep ends with it
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

/** The wrapper's end of the pipe. */
export interface Watchdog {
  /** Whom to guard. */
  watch(pid: number): void;
  /** If the wrapper stays silent for so long, the child is ended. */
  setDeadline(ms: number): void;
  /** Passes a signal to the child and everything below it. */
  forwardSignal(name: NodeJS.Signals): void;
  /** TERM now, KILL after `ms`; settles when nothing of it is left. */
  terminate(ms: number): Promise<void>;
  /** The child has ended by itself, or another guard is armed; settles when the guard is gone. Also for one that has died. */
  dismiss(): Promise<void>;
}

/** What a guard must know of the run. */
export interface WatchdogOptions {
  /** Has the child a process group of its own? */
  readonly hasOwnGroup: boolean;
  readonly graceMs: number;
  /** Finds the child should the wrapper die while it starts it. */
  readonly token: string;
  /** Kept open by the guard until it has ended, so that our session lasts as long; see drivers/server/keep-session.ts. */
  readonly keepSessionSocket?: Socket | null;
  /** Likewise its lock; removed by the guard when nothing of the run is left. */
  readonly runFile?: RunFile | null;
  /** The guard died although nobody told it to. */
  readonly onDeath: () => void;
}

/**
 * Starts a guard.
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
  // a guard that died is noticed by its exit
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
      // once: later the id may be another group's
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
 * The guard and its timer, which are a group of their own. A timer outlives a shell that was killed alone: it would end the
 * child when its time is over, whatever was renewed since, and keep the file's lock and the session until then.
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
