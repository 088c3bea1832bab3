/**
 * The folder in which a server keeps what survives a restart:
 *
 *   lock      held by the server that uses the folder
 *   state     the bound of tokens, the longest short lease, after a clean shutdown the table; replaced as a whole
 *   journal   long and detached claims, a line each; appended
 *   sessions  who may hold something: lines that are not durable, and worthless once the machine has been started anew
 *
 * Each file shows whether it is whole (journal.ts, chain.ts), and to which start of which state it belongs. What is
 * damaged, cut short or of another start is refused, or treated as an unclean stop; it is never believed.
 */

import { closeSync, constants, existsSync, openSync, renameSync, statSync, writeSync } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { trimmedPath } from "../private-folder.ts";
import type { StateName } from "../protocol/hello.ts";
import { Chain } from "./chain.ts";
import type { Disk, Found, JournalRecord, SavedSession, SavedState } from "./disk.ts";
import { openOurs, privateFolder, readOurs, replace, StateError } from "./files.ts";
import type { SessionRecord } from "./journal.ts";
import { journalRecords, recordText, sessionsOf, stateOf, stateText } from "./journal.ts";
import { bootId } from "./processes.ts";

/** Takes a lock that ends with this process; null: another has it. */
type TakeLock = (path: string) => Promise<FolderLock | null>;

/** What keeps other servers out of the folder. */
interface FolderLock {
  /** Why it does not do so any more; null: it does. */
  broken(): string | null;
  close(): void;
}

/** A disk that others could take away. */
export interface StateDisk extends Disk {
  /** Why it is not ours any more; null: it is. */
  lost(): string | null;
}

/** What a folder has in it that a server has been started on. */
const FILES = ["lock", "state", "journal", "sessions"] as const;

/** The file of sessions is written anew when it has grown by this many lines beyond twice what it has to say. */
const SLACK = 1_000;

export interface StateOptions {
  readonly takeLock: TakeLock;
  /** The operator says that nothing of an earlier run can be held. */
  readonly firstStart?: boolean;
  /** Told what was changed to make the folder usable. */
  readonly log: (message: string) => void;
}

/**
 * Takes the folder, made if it is missing.
 * @throws StateError, saying what to do, if it is used by another server, or not ours alone; or if it has been in use
 * although this is said to be the first start
 */
export async function openState(
  given: string,
  { takeLock, firstStart = false, log }: StateOptions,
): Promise<StateDisk> {
  const path = trimmedPath(given);
  await privateFolder(path, log);
  const isUsed = usedBefore(path);
  const lock = await takeLock(join(path, "lock"));
  if (lock === null) throw new StateError(`${path} is used by another server: stop it, or name another folder`);
  // looked at once more: another server may have come and gone before we had the lock
  const left = FILES.filter((name) => name !== "lock" && existsSync(join(path, name)));
  if (firstStart && left.length > 0) {
    lock.close();
    throw new StateError(`${path} has been in use (${left.join(", ")}): this is not its first start`);
  }
  return new StateFolder(path, left.length === 0 && (firstStart || !isUsed), lock);
}

/** Has a server been started on this folder? */
export function usedBefore(path: string): boolean {
  return FILES.some((name) => existsSync(join(path, name)));
}

/** What stands in the folder. @throws StateError if it cannot be relied on */
export async function readState(path: string, fresh: boolean): Promise<Found> {
  const whole = await readOurs(join(path, "state"));
  const found = whole === null ? null : stateOf(whole, join(path, "state"));
  const state = found?.saved ?? null;
  const journalPath = join(path, "journal");
  const journal = await readOurs(journalPath);
  const sessions = state === null ? null : sessionsOf(await readOurs(join(path, "sessions")), state);
  const boot = bootId();
  return {
    state,
    fresh,
    journal: journal === null && state === null ? null : journalRecords(journal, journalPath, state),
    sameBoot: found === null || boot === null || found.boot === boot,
    // who cannot be told apart from a process of an earlier boot is not relied on
    sessions: boot === null ? null : sessions,
  };
}

class StateFolder implements StateDisk {
  readonly #path: string;
  readonly #fresh: boolean;
  readonly #lock: FolderLock;
  #epoch: StateName = { id: "", generation: 0 };
  #journal: { readonly chain: Chain; end: number } = { chain: new Chain("journal", this.#epoch), end: 0 };
  #journalFile: FileHandle | null = null;
  #sessions: { readonly descriptor: number; readonly chain: Chain; end: number } | null = null;
  #noted = new Map<string, SavedSession>();

  constructor(path: string, fresh: boolean, lock: FolderLock) {
    this.#path = path;
    this.#fresh = fresh;
    this.#lock = lock;
  }

  load(): Promise<Found> {
    return readState(this.#path, this.#fresh);
  }

  async begin({ state, journal, sessions }: Parameters<Disk["begin"]>[0]): Promise<void> {
    this.#epoch = state;
    this.#noted = new Map(sessions.map((session) => [session.id, session]));
    this.#rewriteSessions();
    await this.rewrite(journal);
    await this.save(state);
  }

  async save(state: SavedState): Promise<void> {
    this.#checkLock();
    await replace(this.#file("state"), stateText(state, bootId()));
  }

  async append(records: readonly JournalRecord[]): Promise<void> {
    if (records.length === 0) return;
    this.#checkLock();
    const { chain, end } = this.#journal;
    const file = await this.#openJournal();
    const bytes = Buffer.from(records.map((record) => chain.line(recordText(record))).join(""));
    await writeAll(file, bytes, end);
    await file.datasync();
    // only now: whatever the disk keeps of the two, it never counts a line that is not there
    await writeAll(file, Buffer.from(chain.header()), 0);
    this.#journal.end += bytes.length;
  }

  async rewrite(records: readonly JournalRecord[]): Promise<void> {
    this.#checkLock();
    const chain = new Chain("journal", this.#epoch);
    const lines = records.map((record) => chain.line(recordText(record)));
    const text = [chain.header(), ...lines].join("");
    await replace(this.#file("journal"), text);
    await this.#closeJournal();
    this.#journal = { chain, end: Buffer.byteLength(text) };
  }

  note(session: SavedSession): void {
    this.#noted.set(session.id, session);
    this.#write(session);
  }

  unnote(id: string): void {
    if (this.#noted.delete(id)) this.#write({ gone: id });
  }

  lost(): string | null {
    return this.#lock.broken();
  }

  async close(): Promise<void> {
    await this.#closeJournal();
    if (this.#sessions !== null) closeSync(this.#sessions.descriptor);
    this.#sessions = null;
    this.#lock.close();
  }

  /** Whoever else has the folder by now must not find our writes in it. */
  #checkLock(): void {
    const broken = this.#lock.broken();
    if (broken !== null) throw new StateError(broken);
  }

  /** @throws StateError if another file stands there by now: what is appended to ours would be lost. It is written anew then. */
  async #openJournal(): Promise<FileHandle> {
    const path = this.#file("journal");
    this.#journalFile ??= await openOurs(path, constants.O_WRONLY);
    const [ours, named] = [await this.#journalFile?.stat(), statSync(path, { throwIfNoEntry: false })];
    const isOurs = ours?.ino === named?.ino && ours?.dev === named?.dev;
    if (this.#journalFile !== null && isOurs && Number(ours?.size) >= this.#journal.end) return this.#journalFile;
    await this.#closeJournal();
    throw new StateError(`${path} was removed or replaced`);
  }

  async #closeJournal(): Promise<void> {
    const file = this.#journalFile;
    this.#journalFile = null;
    await file?.close();
  }

  #write(record: SessionRecord): void {
    const list = this.#sessions;
    if (list === null || list.chain.count > 2 * this.#noted.size + SLACK) return this.#rewriteSessions();
    try {
      const line = Buffer.from(list.chain.line(JSON.stringify(record)));
      writeWhole(list.descriptor, line, list.end);
      writeWhole(list.descriptor, Buffer.from(list.chain.header()), 0);
      list.end += line.length;
    } catch (error) {
      // what stands there now is not known: the next write replaces it
      this.#sessions = null;
      closeSync(list.descriptor);
      throw error;
    }
  }

  #rewriteSessions(): void {
    const chain = new Chain("sessions", this.#epoch);
    const lines = [...this.#noted.values()].map((session) => chain.line(JSON.stringify(session)));
    const bytes = Buffer.from([chain.header(), ...lines].join(""));
    const path = this.#file("sessions");
    const { O_WRONLY, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants;
    const descriptor = openSync(`${path}.new`, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0o600);
    try {
      writeWhole(descriptor, bytes, 0);
      this.#checkLock();
      renameSync(`${path}.new`, path);
    } catch (error) {
      closeSync(descriptor);
      throw error;
    }
    if (this.#sessions !== null) closeSync(this.#sessions.descriptor);
    this.#sessions = { descriptor, chain, end: bytes.length };
  }

  #file(name: string): string {
    return join(this.#path, name);
  }
}

function writeWhole(descriptor: number, bytes: Buffer, position: number): void {
  if (writeSync(descriptor, bytes, 0, bytes.length, position) !== bytes.length) {
    throw new Error("a line was written in part: the disk is full");
  }
}

async function writeAll(file: FileHandle, bytes: Buffer, position: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    done += (await file.write(bytes, done, bytes.length - done, position + done)).bytesWritten;
  }
}
