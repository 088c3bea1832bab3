/**
 * What a run (`holdfast run`) on a Unix socket writes down before its command starts: what it holds and which processes
 * work under it, so that a server that is started anew restores exactly that. The format; cli/commands/run/run-file.ts writes it,
 * run-files.ts reads it.
 *
 * A file of lines, each with a checksum before it:
 *   the head       its version, the boot and the space its process ids belong to, the session, the claims, whether the
 *                  file is locked. It stands there, whole, before the file has its name.
 *   a process      its role, id and start time; one line for each, added as soon as it is known
 *   the end        the watchdog has ended the command, because the lease was not renewed: the run holds nothing any more
 *   blanks         room for lines to come, so that a disk that fills up later keeps none of them out
 *
 * The file is locked with flock(2) where there is flock(1): wrapper, watchdog, command and what they start inherit the
 * lock, and the kernel frees it with the last of them. It holds claim ids, and so is a secret: mode 0600, in a folder of
 * mode 0700.
 */

import { createHash } from "node:crypto";
import { decodeReference } from "../../protocol/decode-reference.ts";
import type { DetachedClaim } from "../../protocol/lock-reference.ts";
import { isId } from "../../util/ids.ts";

/** The version of the format; another one is treated as damage. */
const RUN_FORMAT_VERSION = 1;
const CHECKSUM_CHARS = 16;

/** The wrapper is `holdfast run` itself, the watchdog its guard. */
export type RunRole = "wrapper" | "watchdog" | "command";

/** A process of a run; start: its start time (process-probe.ts), null where the system does not say. */
export interface RunProcess {
  readonly role: RunRole;
  readonly pid: number;
  readonly start: string | null;
}

/** What does not change while a run lives. */
export interface RunHeader {
  /** Names the time since the machine was started; null: not known. */
  readonly boot: string | null;
  /** The space its process ids belong to; null: not known. */
  readonly space: string | null;
  /** The session of the wrapper. */
  readonly session: string;
  readonly label: string;
  /** The claims it holds, as a reference: ids, keys, permits, ttl, tokens. */
  readonly reference: string;
  /** The kernel keeps a lock on the file as long as any of its processes lives. */
  readonly locked: boolean;
  /** What it holds stays held until then, also when nothing of it is left (`--hold-at-least`). Wall clock, milliseconds; 0: no. */
  readonly holdUntil: number;
}

/** A run as its file tells it. */
export interface RunRecord extends RunHeader {
  readonly claims: readonly DetachedClaim[];
  readonly processes: readonly RunProcess[];
  /** Nothing works under it any more, and its lease ends: it is not to be restored, even if its wrapper lives. */
  readonly isEnded: boolean;
}

export function encodeHeader(header: RunHeader): string {
  return encodeLine({ run: RUN_FORMAT_VERSION, ...header });
}

export function encodeProcess({ role, pid, start }: RunProcess): string {
  return encodeLine({ role, pid, start });
}

/** Added by the watchdog, which computes no checksums. */
export const END_LINE: string = encodeLine({ ended: true });

/**
 * The run of such a file; null if its head is damaged or of another version. A damaged line of a process is passed over:
 * the lock and the other processes are left.
 */
export function decodeRunRecord(text: string): RunRecord | null {
  const [firstLine, ...otherLines] = text.split("\n");
  const header = decodeLine(firstLine ?? "");
  if (header === null || header.run !== RUN_FORMAT_VERSION) return null;
  const { boot, space, session, label, reference, locked, holdUntil } = header;
  if (!isId(session) || typeof label !== "string" || typeof locked !== "boolean") return null;
  if (typeof reference !== "string" || typeof holdUntil !== "number") return null;
  const processes = otherLines.flatMap((line) => decodeProcess(decodeLine(line)) ?? []);
  try {
    const claims = decodeReference(reference).map((part) => ({ ...part, claim: { ...part.claim, label } }));
    const location = { boot: stringOrNull(boot), space: stringOrNull(space) };
    const isEnded = otherLines.includes(END_LINE.trimEnd());
    return { ...location, session, label, reference, locked, holdUntil, claims, processes, isEnded };
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
  const text = JSON.stringify(value);
  return `${computeChecksum(text)} ${text}\n`;
}

/** Null if the line is damaged. */
function decodeLine(line: string): Readonly<Record<string, unknown>> | null {
  const text = line.slice(CHECKSUM_CHARS + 1);
  if (line !== `${computeChecksum(text)} ${text}`) return null;
  return JSON.parse(text) as Readonly<Record<string, unknown>>;
}

/** Tells damage; no protection, since who can write the file may do all that its owner may. */
function computeChecksum(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, CHECKSUM_CHARS);
}
