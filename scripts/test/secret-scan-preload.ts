// Loaded first into every process of a test run: each id that src/util/ids.ts makes there has the run's mark in it. The
// first characters stay random, since a server's start is named by them and is no secret.

import crypto from "node:crypto";
import { syncBuiltinESMExports } from "node:module";

const ID_CHARS = 26;
const POOL = 256 * ID_CHARS;
const MARK_OFFSET = 8;
const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";

const text = Buffer.from(new URL(import.meta.url).searchParams.get("mark") ?? "", "hex").toString();
const mark = [...text].map((char) => ALPHABET.indexOf(char));
const original = crypto.randomFillSync;

function insertMark<T extends NodeJS.ArrayBufferView>(buffer: T, ...rest: number[]): T {
  original(buffer, ...rest);
  if (Buffer.isBuffer(buffer) && buffer.length === POOL) {
    for (let at = MARK_OFFSET; at < POOL; at += ID_CHARS) buffer.set(mark, at);
  }
  return buffer;
}

crypto.randomFillSync = insertMark as typeof crypto.randomFillSync;
syncBuiltinESMExports();
