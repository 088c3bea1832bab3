/** A checksum that spreads keys over buckets. */

/** Computed with the first checksum: it takes a millisecond, which many programs that import this never need. */
let crcTable: readonly number[] | undefined;

/** CRC16 of the text's UTF-8, as Redis computes it for hash slots (XMODEM). */
export function crc16(text: string): number {
  let crc = 0;
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code > 0x7f) return crc16Of(Buffer.from(text)); // most texts are ASCII, and need no copy
    crc = nextCrc(crc, code);
  }
  return crc;
}

function crc16Of(bytes: Uint8Array): number {
  let crc = 0;
  for (const byte of bytes) crc = nextCrc(crc, byte);
  return crc;
}

function nextCrc(crc: number, byte: number): number {
  crcTable ??= createCrcTable();
  return ((crc << 8) & 0xffff) ^ (crcTable[((crc >> 8) ^ byte) & 0xff] as number);
}

function createCrcTable(): number[] {
  return Array.from({ length: 256 }, (_, byte) => {
    let crc = byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = ((crc << 1) ^ ((crc & 0x8000) === 0 ? 0 : 0x1021)) & 0xffff;
    return crc;
  });
}
