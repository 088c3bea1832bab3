/**
 * The run file, in which `holdfast run` on a Unix socket records, before its command starts, its claims and the
 * processes that work under them, so that a restarted server restores exactly these.
 *
 * The life of a file, and who changes it:
 *   new        the wrapper creates it under a temporary name, with its head and the lock (run-file-writer.ts). One that
 *              its wrapper has left is removed by a start of the server, after a minute.
 *   begun      the wrapper gives it its name, and appends the watchdog. The command has not started.
 *   working    the wrapper appends the command, in the turn of its start
 *   ended      the watchdog (cli/commands/run/watchdog.sh) appends the end: it has ended the command since the wrapper,
 *              which may be stopped, did not renew the lease. The run holds nothing any more, although its wrapper
 *              lives.
 *   gone       removed, by the process that sees the end of the run: the wrapper, when the command has ended (with
 *              --hold-at-least: when the store has confirmed that it keeps the lock); the watchdog, when it has ended
 *              the command in place of a dead wrapper; the server, when the run is over.
 * The server reads it (run-file-reader.ts): at its start each file, later that of a session whose client has left. It
 * derives the RunStatus (command-run.ts) from the file and the processes; session/session-registry.ts keeps or ends the
 * claims by it, and local/run-recovery.ts restores them at a start. cli/commands/run/run.ts begins with the processes
 * of a run, and what the death of each does.
 *
 * A file of lines, each preceded by a checksum:
 *   the head       its version, the boot and the namespace of its process ids, the session, the claims, and whether the
 *                  file is locked. It is complete before the file gets its name.
 *   a process      its role, id and start time; one line for each, appended as soon as it is known
 *   the end        see above
 *   blanks         room for later lines, so that they can be written even if the disk fills up
 *
 * The file is locked with flock(2) where flock(1) exists: wrapper, watchdog, command and their children inherit the
 * lock, and the kernel frees it with the last of them. The file contains claim ids and so is a secret: mode 0600, in a
 * directory with mode 0700.
 */

import { join } from "node:path";
import type { DetachedClaim } from "../../protocol/lock-reference.ts";
import { decodeReference } from "../../protocol/lock-reference.ts";
import { decodeCheckedLine, encodeCheckedLine } from "../../util/checksum.ts";
import { isId, publicTag } from "../../util/ids.ts";

/** The name of a complete file ends with it. */
export const RUN_SUFFIX = ".run";
/** A file has another name until it is complete. */
export const TEMPORARY_SUFFIX = ".new";
/** The version of the format; any other one is treated as damage. */
const RUN_FORMAT_VERSION = 2;

/** The wrapper is `holdfast run` itself; the watchdog ends its command when the wrapper cannot. */
export type RunRole = "wrapper" | "watchdog" | "command";

/** A process of a run; start: its start time (os/process-info.ts), null where the system does not tell. */
export interface RunProcess {
  readonly role: RunRole;
  readonly pid: number;
  readonly start: string | null;
}

/** The part that stays the same while a run lives. */
export interface RunHeader {
  /** Identifies the time since the machine was started; null: unknown. */
  readonly boot: string | null;
  /** The namespace of its process ids; null: unknown. */
  readonly space: string | null;
  /** The session of the wrapper. */
  readonly session: string;
  readonly label: string;
  /** The claims of the run, as a lock reference: ids, keys, permits, ttl, tokens. */
  readonly reference: string;
  /** The kernel keeps a lock on the file as long as any of its processes lives. */
  readonly locked: boolean;
  /** Its locks stay held until then, even after its end (`--hold-at-least`). Wall clock, milliseconds; 0: not set. */
  readonly holdUntil: number;
  /** The same by the time since the boot, which no step of the clock changes; it counts while the boot is the same. */
  readonly holdUntilUptime: number;
}

/** The contents of a run file. */
export interface RunRecord extends RunHeader {
  readonly claims: readonly DetachedClaim[];
  readonly processes: readonly RunProcess[];
  /** The command has ended, and its lease will expire: the run must not be restored, even if its wrapper lives. */
  readonly isEnded: boolean;
}

/** The run file of a session. */
export function runFilePath(directory: string, session: string): string {
  return join(directory, `${publicTag(session)}${RUN_SUFFIX}`);
}

/** Its name while it is being created. */
export function temporaryRunFilePath(directory: string, session: string): string {
  return join(directory, `${publicTag(session)}${TEMPORARY_SUFFIX}`);
}

export function encodeHeader(header: RunHeader): string {
  return encodeLine({ run: RUN_FORMAT_VERSION, ...header });
}

export function encodeProcess({ role, pid, start }: RunProcess): string {
  return encodeLine({ role, pid, start });
}

/** Appended by the watchdog, which cannot compute checksums. */
export const END_LINE: string = encodeLine({ ended: true });

/**
 * Decodes a run file; null if its head is damaged or of another version. A damaged process line is skipped: the lock
 * and the other processes remain.
 */
export function decodeRunRecord(text: string): RunRecord | null {
  const [firstLine, ...otherLines] = text.split("\n");
  const header = decodeLine(firstLine ?? "");
  if (header === null || header.run !== RUN_FORMAT_VERSION) return null;
  const { boot, space, session, label, reference, locked, holdUntil, holdUntilUptime } = header;
  if (!isId(session) || typeof label !== "string" || typeof locked !== "boolean") return null;
  if (typeof reference !== "string") return null;
  if (typeof holdUntil !== "number" || typeof holdUntilUptime !== "number") return null;
  const processes = otherLines.flatMap((line) => decodeProcess(decodeLine(line)) ?? []);
  try {
    const claims = decodeReference(reference).map((part) => ({ ...part, claim: { ...part.claim, label } }));
    const location = { boot: stringOrNull(boot), space: stringOrNull(space) };
    const isEnded = otherLines.includes(END_LINE.trimEnd());
    const hold = { holdUntil, holdUntilUptime };
    return { ...location, session, label, reference, locked, ...hold, claims, processes, isEnded };
  } catch (error) {
    // written by another version of this program
    if (error instanceof TypeError) return null;
    throw error;
  }
}

function decodeProcess(value: Readonly<Record<string, unknown>> | null): RunProcess | null {
  if (value === null) return null;
  const { role, pid, start } = value;
  if (role !== "wrapper" && role !== "watchdog" && role !== "command") return null;
  if (!Number.isSafeInteger(pid) || (pid as number) <= 0) return null;
  return { role, pid: pid as number, start: stringOrNull(start) };
}

function stringOrNull(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

function encodeLine(value: unknown): string {
  return encodeCheckedLine(JSON.stringify(value));
}

/** Null if the line is damaged. */
function decodeLine(line: string): Readonly<Record<string, unknown>> | null {
  const text = decodeCheckedLine(line);
  return text === null ? null : (JSON.parse(text) as Readonly<Record<string, unknown>>);
}
