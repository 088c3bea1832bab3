/** A checksum that spreads keys over buckets. */

const CRC_TABLE: readonly number[] = Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit++) crc = ((crc << 1) ^ ((crc & 0x8000) === 0 ? 0 : 0x1021)) & 0xffff;
  return crc;
});

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
  return ((crc << 8) & 0xffff) ^ (CRC_TABLE[((crc >> 8) ^ byte) & 0xff] as number);
}
