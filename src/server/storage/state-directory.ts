/**
 * The directory for the state that survives a restart:
 *
 *   lock      held by the server that uses the directory
 *   state     the token ceiling, the longest short lease, and after a clean shutdown the table; replaced as one file
 *   journal   long and detached claims, one per line; appended
 *   sessions  the sessions that may be holders: lines that are not durable, and worthless after a reboot
 *
 * Each file shows whether it is complete (format.ts, checksum-chain.ts), and to which start of which state it belongs.
 * A file that is damaged, truncated or of another start is refused, or treated as an unclean stop; its contents are
 * never used (decision 0027).
 */

import { closeSync, constants, existsSync, openSync, realpathSync, renameSync, statSync, writeSync } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { findLocksPerMount, findMount, readMounts } from "../../os/mounts.ts";
import { trimTrailingSlashes } from "../../os/private-directory.ts";
import { readBootId } from "../../os/process-info.ts";
import type { StateEpoch } from "../../protocol/handshake.ts";
import { ChecksumChain } from "./checksum-chain.ts";
import type { SessionRecord } from "./format.ts";
import { decodeJournal, decodeSessions, decodeState, encodeRecord, encodeSession, encodeState } from "./format.ts";
import {
  ensurePrivateDirectory,
  openPrivate,
  readPrivate,
  replaceAtomically,
  StateError,
  toWriteError,
} from "./private-files.ts";
import type { JournalRecord, LoadedState, SavedSession, SavedState, Storage } from "./storage.ts";

/** Acquires a lock that ends with this process; null: another process has it. */
type AcquireLock = (path: string) => Promise<DirectoryLock | null>;

/** The lock that keeps other servers out of the directory. */
interface DirectoryLock {
  /** Why it no longer does so; null: it does. */
  lostReason(): string | null;
  close(): void;
}

/** Storage that another process could take over. */
export interface DirectoryStorage extends Storage {
  /** Why it is no longer ours; null: it is. */
  lostReason(): string | null;
}

/**
 * The length of a line of the journal that drops a claim, rounded up. So much is kept free behind the lines for each
 * claim: written as spaces, since a write there needs no new block of a full disk.
 */
const DROP_LINE_BYTES = 64;
/** The room grows in such steps, so that most lines need none. */
const ROOM_STEP_BYTES = 16_384;

/** The files in a directory that a server has used. */
const FILES = ["lock", "state", "journal", "sessions"] as const;

const ignore = (): void => undefined;

/** The list of sessions is rewritten when it has this many lines more than twice the number of its sessions. */
const COMPACTION_SLACK = 1_000;

export interface StateDirectoryOptions {
  readonly acquireLock: AcquireLock;
  /** The operator confirms that no lock of an earlier run can be held. */
  readonly firstStart?: boolean;
  /** Called with each change that was made so that the directory can be used. */
  readonly log: (message: string) => void;
}

/**
 * Locks the directory, which is created if it is missing.
 * @throws StateError, saying what to do, if another server uses it, if other users have access to it, or if it has been
 * in use although `firstStart` is set
 */
export async function openStateDirectory(
  rawPath: string,
  { acquireLock, firstStart = false, log }: StateDirectoryOptions,
): Promise<DirectoryStorage> {
  const path = trimTrailingSlashes(rawPath);
  await ensurePrivateDirectory(path, log);
  checkFileLocks(path);
  const isUsed = hasBeenUsed(path);
  const lock = await acquireLock(join(path, "lock"));
  if (lock === null) throw new StateError(`${path} is used by another server: stop it, or name another directory`);
  // checked again: another server may have used the directory before we had the lock
  const leftFiles = FILES.filter((name) => name !== "lock" && existsSync(join(path, name)));
  if (firstStart && leftFiles.length > 0) {
    lock.close();
    throw new StateError(`${path} has been in use (${leftFiles.join(", ")}): this is not its first start`);
  }
  return new StateDirectory(path, leftFiles.length === 0 && (firstStart || !isUsed), lock);
}

/**
 * @throws StateError if another server could lock the directory, too, through another mount. The root directory is
 * exempt: in a container it is often FUSE, and has one mount.
 */
export function checkFileLocks(path: string): void {
  const [realPath, mounts] = [realpathSync(path), readMounts()];
  const fileSystem = findMount(mounts, realPath)?.point === "/" ? null : findLocksPerMount(realPath, mounts);
  if (fileSystem === null) return;
  throw new StateError(
    `${path} is on ${fileSystem}, where servers on two mounts of it, as in two containers, could grant the same lock: name a directory on a local file system (in a container: of a volume)`,
  );
}

/** True if a server has used this directory. */
export function hasBeenUsed(path: string): boolean {
  return FILES.some((name) => existsSync(join(path, name)));
}

/** Loads the contents of the directory. @throws StateError if they cannot be relied on */
export async function loadState(path: string, isFirstStart: boolean): Promise<LoadedState> {
  const stateText = await readPrivate(join(path, "state"));
  const decoded = stateText === null ? null : decodeState(stateText, join(path, "state"));
  const state = decoded?.saved ?? null;
  const journalPath = join(path, "journal");
  const journalText = await readPrivate(journalPath);
  const sessions = state === null ? null : decodeSessions(await readPrivate(join(path, "sessions")), state);
  const boot = readBootId();
  return {
    state,
    isFirstStart,
    journal: journalText === null && state === null ? null : decodeJournal(journalText, journalPath, state),
    isSameBoot: decoded === null || boot === null || decoded.boot === boot,
    // without a boot id a process cannot be told from one before a reboot, so the list is not relied on
    sessions: boot === null ? null : sessions,
  };
}

class StateDirectory implements DirectoryStorage {
  readonly #path: string;
  readonly #isFirstStart: boolean;
  readonly #lock: DirectoryLock;
  #epoch: StateEpoch = { id: "", generation: 0 };
  /** What is on disk: `end` is behind the last line, `size` behind the room that is kept for more. */
  #journal: { chain: ChecksumChain; end: number; size: number } = {
    chain: new ChecksumChain("journal", this.#epoch),
    end: 0,
    size: 0,
  };
  /** A write of the journal's header has failed: which lines it counts is unknown, and only a new file helps. */
  #isHeaderUnknown = false;
  #journalFile: FileHandle | null = null;
  #sessions: { readonly descriptor: number; readonly chain: ChecksumChain; end: number } | null = null;
  #persistedSessions = new Map<string, SavedSession>();

  constructor(path: string, isFirstStart: boolean, lock: DirectoryLock) {
    this.#path = path;
    this.#isFirstStart = isFirstStart;
    this.#lock = lock;
  }

  load(): Promise<LoadedState> {
    return loadState(this.#path, this.#isFirstStart);
  }

  async beginRun({ state, journal, sessions }: Parameters<Storage["beginRun"]>[0]): Promise<void> {
    this.#epoch = state;
    this.#persistedSessions = new Map(sessions.map((session) => [session.id, session]));
    this.#rewriteSessions();
    await this.rewriteJournal(journal);
    await this.saveState(state);
  }

  async saveState(state: SavedState): Promise<void> {
    this.#checkLock();
    await replaceAtomically(this.#filePath("state"), encodeState(state, readBootId()));
  }

  async appendJournal(records: readonly JournalRecord[], claimCount: number): Promise<void> {
    if (records.length === 0) return;
    this.#checkLock();
    const file = await this.#openJournal();
    const chain = this.#journal.chain.clone();
    const bytes = Buffer.from(records.map((record) => chain.appendLine(encodeRecord(record))).join(""));
    const end = this.#journal.end + bytes.length;
    try {
      await this.#keepRoom(file, end + claimCount * DROP_LINE_BYTES);
      await writeFully(file, bytes, this.#journal.end);
      await file.datasync();
    } catch (error) {
      // a line that was refused must not come back after a crash
      await writeFully(file, Buffer.alloc(bytes.length, " "), this.#journal.end).catch(ignore);
      throw toWriteError(this.#filePath("journal"), error);
    }
    this.#isHeaderUnknown = true;
    // only now, so that the count on disk never includes a line that is missing
    await writeFully(file, Buffer.from(chain.encodeHeader()), 0);
    this.#isHeaderUnknown = false;
    this.#journal = { chain, end, size: Math.max(this.#journal.size, end) };
  }

  /** Makes the journal so long; its lines are shorter. */
  async #keepRoom(file: FileHandle, size: number): Promise<void> {
    if (size <= this.#journal.size) return;
    const nextSize = roundUpRoom(size);
    await writeFully(file, Buffer.alloc(nextSize - this.#journal.size, " "), this.#journal.size);
    this.#journal.size = nextSize;
  }

  async rewriteJournal(records: readonly JournalRecord[]): Promise<void> {
    this.#checkLock();
    const chain = new ChecksumChain("journal", this.#epoch);
    const lines = records.map((record) => chain.appendLine(encodeRecord(record)));
    const text = [chain.encodeHeader(), ...lines].join("");
    const end = Buffer.byteLength(text);
    const size = roundUpRoom(end + records.length * DROP_LINE_BYTES);
    await replaceAtomically(this.#filePath("journal"), text + " ".repeat(size - end));
    await this.#closeJournal();
    this.#journal = { chain, end, size };
    this.#isHeaderUnknown = false;
  }

  addSession(session: SavedSession): void {
    this.#persistedSessions.set(session.id, session);
    this.#appendSession(session);
  }

  removeSession(id: string): void {
    if (this.#persistedSessions.delete(id)) this.#appendSession({ gone: id });
  }

  lostReason(): string | null {
    return this.#lock.lostReason();
  }

  async close(): Promise<void> {
    await this.#closeJournal();
    if (this.#sessions !== null) closeSync(this.#sessions.descriptor);
    this.#sessions = null;
    this.#lock.close();
  }

  /** A server that has taken over the directory must not find our writes in it. */
  #checkLock(): void {
    const reason = this.#lock.lostReason();
    if (reason !== null) throw new StateError(reason);
  }

  /** @throws StateError if the file was replaced, since appended lines would be lost. The caller then rewrites it. */
  async #openJournal(): Promise<FileHandle> {
    const path = this.#filePath("journal");
    if (this.#isHeaderUnknown) throw new StateError(`the last write to ${path} has failed`);
    this.#journalFile ??= await openPrivate(path, constants.O_WRONLY);
    const [opened, current] = [await this.#journalFile?.stat(), statSync(path, { throwIfNoEntry: false })];
    const isSameFile = opened?.ino === current?.ino && opened?.dev === current?.dev;
    if (this.#journalFile !== null && isSameFile && Number(opened?.size) >= this.#journal.end) return this.#journalFile;
    await this.#closeJournal();
    throw new StateError(`${path} was removed or replaced`);
  }

  async #closeJournal(): Promise<void> {
    const file = this.#journalFile;
    this.#journalFile = null;
    await file?.close();
  }

  #appendSession(record: SessionRecord): void {
    const list = this.#sessions;
    if (list === null || list.chain.lineCount > 2 * this.#persistedSessions.size + COMPACTION_SLACK)
      return this.#rewriteSessions();
    try {
      const line = Buffer.from(list.chain.appendLine(encodeSession(record)));
      writeFullySync(list.descriptor, line, list.end);
      writeFullySync(list.descriptor, Buffer.from(list.chain.encodeHeader()), 0);
      list.end += line.length;
    } catch (error) {
      // the contents are unknown now: the next write replaces the file
      this.#sessions = null;
      closeSync(list.descriptor);
      throw toWriteError(this.#filePath("sessions"), error);
    }
  }

  #rewriteSessions(): void {
    const chain = new ChecksumChain("sessions", this.#epoch);
    const lines = [...this.#persistedSessions.values()].map((session) => chain.appendLine(encodeSession(session)));
    const bytes = Buffer.from([chain.encodeHeader(), ...lines].join(""));
    const path = this.#filePath("sessions");
    const { O_WRONLY, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants;
    const descriptor = openSync(`${path}.new`, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0o600);
    try {
      writeFullySync(descriptor, bytes, 0);
      this.#checkLock();
      renameSync(`${path}.new`, path);
    } catch (error) {
      closeSync(descriptor);
      throw toWriteError(path, error);
    }
    if (this.#sessions !== null) closeSync(this.#sessions.descriptor);
    this.#sessions = { descriptor, chain, end: bytes.length };
  }

  #filePath(name: string): string {
    return join(this.#path, name);
  }
}

function roundUpRoom(size: number): number {
  return Math.ceil(size / ROOM_STEP_BYTES) * ROOM_STEP_BYTES;
}

function writeFullySync(descriptor: number, bytes: Buffer, position: number): void {
  if (writeSync(descriptor, bytes, 0, bytes.length, position) !== bytes.length) {
    throw new Error("a line was only partly written: the disk is full");
  }
}

async function writeFully(file: FileHandle, bytes: Buffer, position: number): Promise<void> {
  for (let written = 0; written < bytes.length; ) {
    written += (await file.write(bytes, written, bytes.length - written, position + written)).bytesWritten;
  }
}
