/** Damage to a file of a stopped store, as by a bad disk: one bit is flipped, in place. */

import { closeSync, openSync, readFileSync, readSync, writeSync } from "node:fs";

/** @param offset of the byte @param bit 0 to 7 */
export function flipBit(path: string, offset: number, bit: number): void {
  const file = openSync(path, "r+");
  try {
    const byte = Buffer.alloc(1);
    if (readSync(file, byte, 0, 1, offset) !== 1) throw new RangeError(`${path} has no byte ${offset}`);
    byte[0] = (byte[0] as number) ^ (1 << bit);
    writeSync(file, byte, 0, 1, offset);
  } finally {
    closeSync(file);
  }
}

/** A part of a file with one meaning: a header, the last record. */
export interface FileRegion {
  readonly name: string;
  readonly start: number;
  readonly end: number;
}

const CHECKSUM_CHARS = 16;

/** The regions of a file of the lock server: of lines that begin with a checksum, and of the room behind them. */
export function findLineRegions(path: string): FileRegion[] {
  const bytes = readFileSync(path);
  const regions: FileRegion[] = [];
  const lineEnds: number[] = [];
  for (let end = bytes.indexOf(10); end !== -1; end = bytes.indexOf(10, end + 1)) lineEnds.push(end);
  for (const [index, end] of lineEnds.entries()) {
    const start = index === 0 ? 0 : (lineEnds[index - 1] as number) + 1;
    const line = index === 0 ? "header" : index === lineEnds.length - 1 ? "last line" : `line ${index}`;
    regions.push(
      { name: `checksum of ${line}`, start, end: start + CHECKSUM_CHARS },
      { name: `text of ${line}`, start: start + CHECKSUM_CHARS, end },
      { name: `end of ${line}`, start: end, end: end + 1 },
    );
  }
  const room = (lineEnds.at(-1) ?? -1) + 1;
  if (room < bytes.length) regions.push({ name: "room", start: room, end: bytes.length });
  return regions;
}

const DATABASE_HEADER_BYTES = 100;
const WAL_HEADER_BYTES = 32;
const WAL_FRAME_HEADER_BYTES = 24;
const JOURNAL_HEADER_BYTES = 28;

/**
 * The regions of a file of SQLite: of a database, its write-ahead log or its rollback journal; and each place with one
 * of these texts.
 */
export function findSqliteRegions(path: string, texts: readonly string[]): FileRegion[] {
  const bytes = readFileSync(path);
  const region = (name: string, start: number, end: number): FileRegion[] =>
    start < bytes.length ? [{ name, start, end: Math.min(end, bytes.length) }] : [];
  const found = texts.flatMap((text) => {
    const start = bytes.lastIndexOf(text);
    return start === -1 ? [] : region(text, start, start + Buffer.byteLength(text));
  });
  if (path.endsWith("-wal")) {
    const frame = WAL_FRAME_HEADER_BYTES + bytes.readUInt32BE(8);
    const last = bytes.length - frame;
    return [
      ...region("header", 0, WAL_HEADER_BYTES),
      ...region("header of the first frame", WAL_HEADER_BYTES, WAL_HEADER_BYTES + WAL_FRAME_HEADER_BYTES),
      ...region("page of the first frame", WAL_HEADER_BYTES + WAL_FRAME_HEADER_BYTES, WAL_HEADER_BYTES + frame),
      ...region("header of the last frame", last, last + WAL_FRAME_HEADER_BYTES),
      ...region("page of the last frame", last + WAL_FRAME_HEADER_BYTES, bytes.length),
      ...found,
    ];
  }
  if (path.endsWith("-journal"))
    return [...region("header", 0, JOURNAL_HEADER_BYTES), ...region("pages", 512, bytes.length), ...found];
  const size = bytes.readUInt16BE(16);
  const pageBytes = size === 1 ? 65_536 : size;
  return [
    ...region("header", 0, DATABASE_HEADER_BYTES),
    ...region("schema", DATABASE_HEADER_BYTES, pageBytes),
    ...Array.from({ length: Math.ceil(bytes.length / pageBytes) - 1 }, (_, index) => {
      const start = (index + 1) * pageBytes;
      return region(`header of page ${index + 2}`, start, start + 8);
    }).flat(),
    ...found,
  ];
}
