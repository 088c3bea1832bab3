/**
 * A loss of power for the processes that use a folder: they are killed, and the folder becomes what a disk could have of
 * it. What was synced is there; of the rest, what an outcome says. power-loss.c, which the processes preload, keeps what
 * was synced in a folder of its own, the shadow.
 *
 * What is not synced survives in sectors of 512 bytes: a disk writes one whole, or not at all, but for the last one. The
 * renaming of a file survives as a whole or not at all.
 */

import { spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import type { BigIntStats } from "node:fs";
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { probeProcess, readStartTime } from "../../os/process-info.ts";
import type { Random } from "../../testing/random.ts";
import PRELOAD_SOURCE from "./power-loss.c";

const COMPILER = "cc";
const SECTOR_BYTES = 512;
const KILL_POLL_MS = 2;
/** Of power-loss.c: three numbers. */
const CONTROL_BYTES = 24;
const LEFT_OFFSET = 8;
const COUNT_OFFSET = 16;

/**
 * What survives of that which was not synced. synced: nothing. sectors: any of the changed sectors and names; the last
 * sector may be torn. contents: all contents, and no name. names: all names, and no contents.
 */
export type PowerLossOutcome = "synced" | "sectors" | "contents" | "names";

const OUTCOMES: readonly PowerLossOutcome[] = ["synced", "sectors", "contents", "names"];

/** What a loss of power has done to the folder. */
export interface PowerLoss {
  readonly outcome: PowerLossOutcome;
  /** The changed sectors that were written in part. */
  readonly torn: readonly TornSector[];
}

export interface TornSector {
  /** Within the folder. */
  readonly path: string;
  readonly sector: number;
  /** What it would be if the disk had written it whole. */
  readonly whole: Buffer;
}

/** A folder whose processes can lose their power. */
export interface PowerLossDisk {
  readonly folder: string;
  readonly shadow: string;
  /** Variables for the environment of each process that uses the folder. */
  readonly environment: Readonly<Record<string, string>>;
}

interface Entry {
  readonly kind: "f" | "d";
  /** The inode, and how often it was created. */
  readonly id: string;
}

/** A folder by its names. */
type Entries = ReadonlyMap<string, Entry>;

/** Why there can be none here; null if there can. */
export function powerLossUnavailableReason(): string | null {
  const isBuilt = process.platform === "linux" && spawnSync(COMPILER, ["--version"], { stdio: "ignore" }).status === 0;
  return isBuilt ? null : "no C compiler on Linux";
}

/** What is in the folder now counts as synced. */
export function createPowerLossDisk(folder: string): PowerLossDisk {
  const shadow = mkdtempSync(join(tmpdir(), "holdfast-disk-"));
  const [library, source] = [join(shadow, "power-loss.so"), join(shadow, "power-loss.c")];
  writeFileSync(source, PRELOAD_SOURCE);
  const built = spawnSync(COMPILER, ["-shared", "-fPIC", "-O1", "-o", library, source]);
  if (built.status !== 0) throw new Error(`${COMPILER}: ${String(built.stderr)}`);
  const disk: PowerLossDisk = {
    folder: realpathSync(folder),
    shadow,
    environment: {
      LD_PRELOAD: library,
      POWER_LOSS_FOLDER: realpathSync(folder),
      POWER_LOSS_SHADOW: shadow,
      // its changes go past the library
      UV_USE_IO_URING: "0",
    },
  };
  mkdirSync(join(shadow, "numbers"));
  writeFileSync(join(shadow, "lock"), "");
  markSynced(disk);
  return disk;
}

/** Once no process uses it. */
export function removePowerLossDisk({ shadow }: PowerLossDisk): void {
  rmSync(shadow, { recursive: true });
}

/** The power goes off by itself at the so many-th change of the folder from now on, before that is done. */
export function schedulePowerLoss(disk: PowerLossDisk, changes: number): void {
  writeControl(disk, LEFT_OFFSET, changes);
}

/** How many changes of the folder there have been since the last loss of power. */
export function countChanges({ shadow }: PowerLossDisk): number {
  return Number(readFileSync(join(shadow, "control")).readBigInt64LE(COUNT_OFFSET));
}

/** Kills the processes, which are all that use the folder, and makes the folder what the disk has of it. */
export async function losePower(
  disk: PowerLossDisk,
  pids: readonly number[],
  random: Pick<Random, "int" | "chance">,
  outcome: PowerLossOutcome = OUTCOMES[random.int(OUTCOMES.length)] as PowerLossOutcome,
): Promise<PowerLoss> {
  const starts = pids.map((pid) => readStartTime(pid));
  // none of them changes anything after another one was killed
  writeControl(disk, 0, 1);
  for (const [index, pid] of pids.entries()) if (starts[index] !== null) killProcess(pid);
  for (const [index, pid] of pids.entries()) {
    const start = starts[index] ?? null;
    while (start !== null && probeProcess(pid, start) !== "gone") await delay(KILL_POLL_MS);
  }
  const torn = new SurvivingFiles(disk, random, outcome).write();
  markSynced(disk);
  return { outcome, torn };
}

/** What the folder would have if the disk had written the sector whole. While no process uses it. */
export function rewriteTornSector({ folder }: PowerLossDisk, { path, sector, whole }: TornSector): void {
  const file = openSync(join(folder, path), "r+");
  writeSync(file, whole, 0, whole.length, sector * SECTOR_BYTES);
  closeSync(file);
}

function killProcess(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

function writeControl({ shadow }: PowerLossDisk, offset: number, value: number): void {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64LE(BigInt(value));
  // in place: the processes have the file mapped
  const descriptor = openSync(join(shadow, "control"), "r+");
  writeSync(descriptor, bytes, 0, bytes.length, offset);
  closeSync(descriptor);
}

/** What is in the folder now is on the disk, and the machine has been started again. To be called while no process uses it. */
export function markSynced(disk: PowerLossDisk): void {
  for (const name of ["contents", "names"]) {
    rmSync(join(disk.shadow, name), { recursive: true, force: true });
    mkdirSync(join(disk.shadow, name));
  }
  writeFileSync(join(disk.shadow, "control"), Buffer.alloc(CONTROL_BYTES));
  writeFileSync(join(disk.shadow, "boot-id"), `${randomUUID()}\n`);
  copyToShadow(disk, disk.folder);
}

function copyToShadow(disk: PowerLossDisk, folder: string): void {
  const entries = readEntries(disk, folder);
  const lines = [...entries].map(([name, { kind, id }]) => `${kind} ${id} ${name}\n`);
  writeFileSync(join(disk.shadow, "names", identify(disk, folder)), lines.join(""));
  for (const [name, { kind, id }] of entries) {
    const path = join(folder, name);
    if (kind === "d") copyToShadow(disk, path);
    else writeFileSync(join(disk.shadow, "contents", id), readFileSync(path));
  }
}

function readEntries(disk: PowerLossDisk, folder: string): Map<string, Entry> {
  const entries = new Map<string, Entry>();
  for (const child of readdirSync(folder, { withFileTypes: true })) {
    if (child.isFile() || child.isDirectory())
      entries.set(child.name, {
        kind: child.isDirectory() ? "d" : "f",
        id: identify(disk, join(folder, child.name)),
      });
  }
  return entries;
}

function identify({ shadow }: PowerLossDisk, path: string): string {
  const { ino }: BigIntStats = statSync(path, { bigint: true });
  const numberPath = join(shadow, "numbers", String(ino));
  return `${ino}.${existsSync(numberPath) ? readFileSync(numberPath, "utf8") : "0"}`;
}

/** The folder after a loss of power. */
class SurvivingFiles {
  readonly #disk: PowerLossDisk;
  readonly #random: Pick<Random, "int" | "chance">;
  readonly #outcome: PowerLossOutcome;
  readonly #torn: TornSector[] = [];
  /** Where the files of the folder are meanwhile. */
  readonly #aside: string;
  readonly #present = new Map<string, Entries>();

  constructor(disk: PowerLossDisk, random: Pick<Random, "int" | "chance">, outcome: PowerLossOutcome) {
    this.#disk = disk;
    this.#random = random;
    this.#outcome = outcome;
    this.#aside = join(disk.folder, ".power-loss");
  }

  /** Each file keeps its inode, by which its users recognize it. @returns what is torn */
  write(): PowerLoss["torn"] {
    const { folder } = this.#disk;
    const id = identify(this.#disk, folder);
    this.#readPresent(folder, id);
    mkdirSync(this.#aside, { mode: 0o700 });
    this.#moveAside(folder, id);
    this.#writeFolder(folder, id, "");
    rmSync(this.#aside, { recursive: true });
    return this.#torn;
  }

  #readPresent(folder: string, id: string): void {
    const entries = readEntries(this.#disk, folder);
    this.#present.set(id, entries);
    for (const [name, entry] of entries) if (entry.kind === "d") this.#readPresent(join(folder, name), entry.id);
  }

  #moveAside(folder: string, id: string): void {
    for (const [name, entry] of this.#present.get(id) ?? []) {
      const path = join(folder, name);
      if (entry.kind === "f") renameSync(path, join(this.#aside, entry.id));
      else {
        this.#moveAside(path, entry.id);
        rmSync(path, { recursive: true });
      }
    }
  }

  #writeFolder(folder: string, id: string, path: string): void {
    const synced = this.#readSyncedNames(id);
    const present = this.#present.get(id) ?? synced;
    for (const [name, entry] of this.#chooseNames(synced, present)) {
      const childPath = join(path, name);
      if (entry.kind === "f") {
        this.#writeFile(join(folder, name), entry.id, childPath);
        continue;
      }
      mkdirSync(join(folder, name), { mode: 0o700 });
      this.#writeFolder(join(folder, name), entry.id, childPath);
    }
  }

  #writeFile(target: string, id: string, path: string): void {
    const aside = join(this.#aside, id);
    const present = existsSync(aside) ? readFileSync(aside) : null;
    const syncedPath = join(this.#disk.shadow, "contents", id);
    const synced = existsSync(syncedPath) ? readFileSync(syncedPath) : null;
    const contents = this.#chooseContents(synced, present, path);
    if (present !== null) renameSync(aside, target);
    writeFileSync(target, contents, { mode: 0o600 });
    // the mode is not what the process left, which the umask may have changed
    if (present === null) chmodSync(target, 0o600);
  }

  /** Names that changed together, as by renaming a file, survive together. */
  #chooseNames(synced: Entries, present: Entries): Entries {
    if (this.#outcome === "names") return present;
    if (this.#outcome !== "sectors") return synced;
    const chosen = new Map(synced);
    for (const names of findRenamings(synced, present)) {
      if (this.#random.chance(0.5)) continue;
      for (const name of names) {
        const entry = present.get(name);
        if (entry === undefined) chosen.delete(name);
        else chosen.set(name, entry);
      }
    }
    return chosen;
  }

  #chooseContents(synced: Buffer | null, present: Buffer | null, path: string): Buffer {
    const before = synced ?? Buffer.alloc(0);
    if (present === null || this.#outcome === "synced") return before;
    if (this.#outcome === "contents") return present;
    if (this.#outcome === "sectors") return this.#mixSectors(before, present, path);
    // a file system may know the length of a file although its contents were never written
    return synced === null && this.#random.chance(0.5) ? Buffer.alloc(present.length) : before;
  }

  #mixSectors(before: Buffer, after: Buffer, path: string): Buffer {
    const mixed = Buffer.alloc(this.#random.chance(0.5) ? after.length : before.length);
    before.copy(mixed);
    let lastWritten: number | null = null;
    for (let start = 0; start < mixed.length; start += SECTOR_BYTES) {
      const sector = after.subarray(start, start + SECTOR_BYTES);
      if (sector.equals(mixed.subarray(start, start + sector.length)) || this.#random.chance(0.5)) continue;
      sector.copy(mixed, start);
      lastWritten = start;
    }
    if (lastWritten !== null && this.#random.chance(0.5)) this.#tear(before, mixed, lastWritten, path);
    return mixed;
  }

  /** The rest of the sector is as it was before. */
  #tear(before: Buffer, mixed: Buffer, start: number, path: string): void {
    const end = Math.min(start + SECTOR_BYTES, mixed.length);
    const from = start + 1 + this.#random.int(Math.max(end - start - 1, 1));
    const whole = Buffer.from(mixed.subarray(start, end));
    mixed.fill(0, from, end);
    if (from < before.length) before.copy(mixed, from, from, end);
    this.#torn.push({ path, sector: start / SECTOR_BYTES, whole });
  }

  #readSyncedNames(id: string): Entries {
    const path = join(this.#disk.shadow, "names", id);
    // the names of a new folder were never synced
    if (!existsSync(path)) return new Map();
    const lines = readFileSync(path, "utf8").split("\n").slice(0, -1);
    return new Map(
      lines.map((line) => {
        const [kind, fileId, ...words] = line.split(" ");
        return [words.join(" "), { kind: kind as Entry["kind"], id: fileId as string }] as const;
      }),
    );
  }
}

/** The names that differ, in groups: a name belongs to the group of another one that has, or had, the same file. */
function findRenamings(synced: Entries, present: Entries): readonly ReadonlySet<string>[] {
  let groups: { readonly names: Set<string>; readonly ids: Set<string> }[] = [];
  for (const name of new Set([...synced.keys(), ...present.keys()])) {
    const ids = [synced.get(name)?.id, present.get(name)?.id];
    if (ids[0] === ids[1]) continue;
    const joined = { names: new Set([name]), ids: new Set(ids.filter((id) => id !== undefined)) };
    groups = groups.filter((group) => {
      if (![...group.ids].some((id) => joined.ids.has(id))) return true;
      for (const member of group.names) joined.names.add(member);
      for (const id of group.ids) joined.ids.add(id);
      return false;
    });
    groups.push(joined);
  }
  return groups.map(({ names }) => names);
}
