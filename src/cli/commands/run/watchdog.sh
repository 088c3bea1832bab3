#!/bin/sh
# The watchdog of `holdfast run`. It reads a pipe from the wrapper, the process of `holdfast run`. However the wrapper dies,
# the pipe ends: then the watchdog ends the command and all processes below it before the lease can end. watchdog.ts starts it.
#
# Arguments: "group" or "tree" (does the command have its own process group?); the grace in seconds; the fencing token; the run
# file (server/runs/run-file-format.ts), which is removed when no process of the run is left; the line that is appended to
# that file when a lease has ended without a message from the wrapper; and "keep" if the server must still find the file
# after the run.
#
# The lines that it reads:
#   command PID      the command; before this line, the command is found by the token in its environment
#   lease SECONDS    a dead man's switch: act as on `end GRACE` after this time, unless another `lease` or an `end` arrives
#   signal NAME      pass this signal on
#   end SECONDS      TERM now, KILL to the remaining processes after this time (0.000: KILL now), then exit
# The end of the pipe means `end GRACE`.
#
# The watchdog has its own session: no signal of a terminal or to the wrapper's group reaches it. Descriptors 3 and 4 are the
# keep-session connection and the lock of the run file. A sleep must not inherit them: it would keep the session and the lock
# after the watchdog has ended.
#
# Lists of process ids are unquoted on purpose: each id is an argument of its own.
# shellcheck disable=SC2046,SC2086

mode=$1 grace=$2 token=$3 run_file=$4 end_line=$5 keep=$6
pid='' timer='' lease_ended=''

# $*, all processes below them and, in group mode, those of their groups; without zombies
list_processes() {
  if [ -r /proc/self/stat ]; then
    table=$(cat /proc/[0-9]*/stat 2>/dev/null | sed -n 's/^\([0-9]*\) (.*) [A-WY] \([0-9]*\) \([0-9]*\) .*/\1 \2 \3/p')
  else
    table=$(ps -A -o pid= -o ppid= -o pgid=)
  fi
  found=" $* " has_grown=1
  while [ -n "$has_grown" ]; do
    has_grown=''
    while read -r process parent group; do
      case $found in *" $process "*) continue ;; esac
      case $found in *" $parent "*) found="$found$process " has_grown=1; continue ;; esac
      [ "$mode" = group ] || continue
      case $found in *" $group "*) found="$found$process " has_grown=1 ;; esac
    done <<EOF
$table
EOF
  done
  echo "$found"
}

read_group() { # process
  if { read -r stat <"/proc/$1/stat"; } 2>/dev/null; then
    set -- ${stat##*) }
    echo "$3"
  else
    # without quotes: ps pads the number with spaces
    # shellcheck disable=SC2005
    echo $(ps -o pgid= -p "$1")
  fi
}

send_signal() { # name, processes: each receives it once
  name=$1; shift
  [ "$mode" = group ] && kill -s "$name" -- "-$pid" 2>/dev/null
  for process do
    [ "$mode" = group ] && [ "$(read_group "$process")" = "$pid" ] && continue
    kill -s "$name" -- "$process" 2>/dev/null
  done
}

is_any_alive() { # processes
  for process do
    if [ -r /proc/self/stat ]; then
      { read -r stat <"/proc/$process/stat"; } 2>/dev/null || continue
      case ${stat##*) } in [ZX]*) continue ;; esac
      return 0
    fi
    kill -s 0 -- "$process" 2>/dev/null && return 0
  done
  return 1
}

# No process of the run is left.
finish() {
  if [ -n "$lease_ended" ]; then
    # a stopped wrapper may keep the file lock forever: record in the file that no process works under the lease any more
    [ -n "$pid" ] && [ -e "$run_file" ] && { printf '%s\n' "$end_line" >>"$run_file" || rm -f -- "$run_file"; } 2>/dev/null
  elif [ -z "$keep" ]; then
    # a nested run may have inherited the lock and still be running; then the server removes the file later
    [ -e "$run_file" ] && exec 4>&- && flock -n "$run_file" rm -f -- "$run_file" 2>/dev/null
  fi
  exit 0
}

terminate() { # seconds until KILL
  # start the clock before the searches for processes: on a busy machine they are slow, and KILL must not be late
  # shellcheck disable=SC2217 # otherwise it would have the pipe from the wrapper
  sleep "$1" </dev/null 3>&- 4>&- &
  clock=$!
  if [ -z "$pid" ]; then
    # the wrapper died while it started the command, which may not have executed its program yet
    sleep 0.3
    pid=$(grep -lsFa "HOLDFAST_TOKEN=$token" /proc/[0-9]*/environ | sed 's|[^0-9]||g' | tr '\n' ' ')
    mode=tree
    if [ -z "$pid" ] || [ -z "$token" ]; then kill -s KILL "$clock" 2>/dev/null; finish; fi
  fi
  processes=$(list_processes $pid)
  [ "$1" = 0.000 ] || send_signal TERM $processes
  while is_any_alive $processes && kill -s 0 "$clock" 2>/dev/null; do sleep 0.05; done
  kill -s KILL "$clock" 2>/dev/null
  is_any_alive $processes || finish
  # STOP them first: the search takes time, and they must neither work nor start further processes meanwhile
  send_signal STOP $processes
  send_signal KILL $(list_processes $processes)
  # processes that cannot be killed (under sudo) keep the file, and so the lock
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    is_any_alive $processes || finish
    sleep 0.1
  done
  while [ -n "$lease_ended" ]; do
    is_any_alive $processes || finish
    sleep 1 3>&- 4>&-
  done
  exit 0
}

# a timer that keeps running would hold the file lock and the session, and signal unrelated processes with reused ids
stop_timer() {
  [ -n "$timer" ] && kill -s TERM "$timer" 2>/dev/null
  timer=''
}

start_timer() { # seconds until the end of the command; TERM also ends the sleep
  (
    sleep "$1" 3>&- 4>&- &
    sleep_pid=$!
    trap 'kill -s KILL "$sleep_pid"; exit 0' TERM
    wait "$sleep_pid"
    trap - TERM
    lease_ended=yes
    terminate "$grace"
  ) </dev/null &
  timer=$!
}

while read -r word value; do
  case $word in lease | end) stop_timer ;; esac
  case $word in
    command) pid=$value ;;
    lease) start_timer "$value" ;;
    signal) send_signal "$value" $( [ "$mode" = group ] || list_processes $pid ) ;;
    end) terminate "$value" ;;
  esac
done
stop_timer
terminate "$grace"
