/**
 * The folder in which a server keeps what survives a restart:
 *
 *   lock      held by the server that uses the folder
 *   state     the bound of tokens, the longest short lease, after a clean shutdown the table; replaced as a whole
 *   journal   long and detached claims, a line each; appended
 *   sessions  who may hold something: plain lines, not durable, and worthless once the machine has been started anew
 */

import { closeSync, constants, openSync, readFileSync, renameSync, writeSync } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { join } from "node:path";
import type { Disk, Found, JournalRecord, SavedSession, SavedState } from "./disk.ts";
import { openOurs, privateFolder, readOurs, replace, StateError } from "./files.ts";
import { journalLine, journalRecords, stateOf, stateText } from "./journal.ts";

/** Takes a lock that ends with this process; null: another has it. */
export type TakeLock = (path: string) => Promise<{ close(): void } | null>;

/** The file of sessions is written anew when it has grown by this many lines beyond twice what it has to say. */
const SLACK = 1_000;

/**
 * Takes the folder, made if it is missing.
 * @throws StateError, saying what to do, if it is used by another server, or not ours alone
 */
export async function openState(path: string, takeLock: TakeLock): Promise<Disk> {
  const isNew = await privateFolder(path);
  const lock = await takeLock(join(path, "lock"));
  if (lock === null) throw new StateError(`${path} is used by another server: stop it, or name another folder`);
  return new StateFolder(path, isNew, lock);
}

class StateFolder implements Disk {
  readonly #path: string;
  readonly #isNew: boolean;
  readonly #lock: { close(): void };
  #journal: FileHandle | null = null;
  #sessions: number | null = null;
  #noted = new Map<string, SavedSession>();
  #lines = 0;

  constructor(path: string, isNew: boolean, lock: { close(): void }) {
    this.#path = path;
    this.#isNew = isNew;
    this.#lock = lock;
  }

  async load(): Promise<Found> {
    const statePath = this.#file("state");
    const journalPath = this.#file("journal");
    const state = await readOurs(statePath);
    const journal = await readOurs(journalPath);
    const listed = await this.#readSessions();
    return {
      state: state === null ? null : stateOf(state, statePath),
      fresh: this.#isNew,
      journal: journal === null ? [] : journalRecords(journal, journalPath),
      ...listed,
    };
  }

  save(state: SavedState): Promise<void> {
    return replace(this.#file("state"), stateText(state));
  }

  async append(records: readonly JournalRecord[]): Promise<void> {
    if (records.length === 0) return;
    const flags = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT;
    this.#journal ??= (await openOurs(this.#file("journal"), flags)) as FileHandle;
    await this.#journal.appendFile(records.map(journalLine).join(""));
    await this.#journal.datasync();
  }

  async rewrite(records: readonly JournalRecord[]): Promise<void> {
    await replace(this.#file("journal"), records.map(journalLine).join(""));
    await this.#journal?.close();
    this.#journal = null;
  }

  note(session: SavedSession): void {
    this.#noted.set(session.id, session);
    this.#write(JSON.stringify(session));
  }

  unnote(id: string): void {
    if (this.#noted.delete(id)) this.#write(JSON.stringify({ gone: id }));
  }

  renote(sessions: readonly SavedSession[]): void {
    this.#noted = new Map(sessions.map((session) => [session.id, session]));
    this.#rewriteSessions();
  }

  async close(): Promise<void> {
    await this.#journal?.close();
    if (this.#sessions !== null) closeSync(this.#sessions);
    this.#journal = null;
    this.#sessions = null;
    this.#lock.close();
  }

  #write(line: string): void {
    if (this.#sessions === null || ++this.#lines > 2 * this.#noted.size + SLACK) return this.#rewriteSessions();
    writeWhole(this.#sessions, `${line}\n`);
  }

  #rewriteSessions(): void {
    const lines = [JSON.stringify({ boot: bootId() }), ...[...this.#noted.values()].map((it) => JSON.stringify(it))];
    const path = this.#file("sessions");
    const { O_WRONLY, O_CREAT, O_TRUNC, O_NOFOLLOW, O_APPEND } = constants;
    const descriptor = openSync(`${path}.new`, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_APPEND, 0o600);
    try {
      writeWhole(descriptor, `${lines.join("\n")}\n`);
      renameSync(`${path}.new`, path);
    } catch (error) {
      closeSync(descriptor);
      throw error;
    }
    if (this.#sessions !== null) closeSync(this.#sessions);
    this.#sessions = descriptor;
    this.#lines = lines.length;
  }

  async #readSessions(): Promise<Pick<Found, "sameBoot" | "sessions">> {
    const text = await readOurs(this.#file("sessions"));
    const boot = bootId();
    const unreliable = { sameBoot: false, sessions: null };
    if (text === null || boot === null || !text.endsWith("\n")) return unreliable;
    try {
      const [head, ...lines] = text
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line) as Record<string, unknown>);
      const sessions = new Map<string, SavedSession>();
      for (const line of lines) {
        if (typeof line.gone === "string") sessions.delete(line.gone);
        else sessions.set(String(line.id), line as unknown as SavedSession);
      }
      return { sameBoot: head?.boot === boot, sessions: [...sessions.values()] };
    } catch (error) {
      // a torn line, as after a full disk: somebody may be missing
      if (error instanceof SyntaxError) return unreliable;
      throw error;
    }
  }

  #file(name: string): string {
    return join(this.#path, name);
  }
}

function writeWhole(descriptor: number, text: string): void {
  const bytes = Buffer.from(text);
  if (writeSync(descriptor, bytes) !== bytes.length) throw new Error("a line was written in part: the disk is full");
}

/** Names the time since the machine was started; null: this system does not say. */
function bootId(): string | null {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}
