// Set up before every test file that works with a Redis: a test fails when one of our scripts failed in it, whoever swallowed
// the error. Redis does not log such a thing, it only says so in its reply: so what comes in over any socket of this process,
// also over TLS, is looked through for "-ERR user_script ...", and for the answer "e user_script ..." of an item. A refused right (ACL) or command, or a full memory, is not an
// error of a script: tests provoke those. The logs of the servers are looked through when they end: stores/redis.ts.

import { Socket } from "node:net";
import { Readable } from "node:stream";
import { afterEach, expect } from "vitest";

const SCRIPT_ERROR =
  /^-ERR (?!ACL failure|The user executing)[^\r\n]*\b(?:user_script:|script: [0-9a-f]{40})[^\r\n]*|^e [^\r\n]*\buser_script:\d+:[^\r\n]*/m;
const MARKS = [Buffer.from("-ERR "), Buffer.from("user_script:")];
const foundErrors: string[] = [];

Socket.prototype.push = function (chunk: unknown, encoding?: BufferEncoding): boolean {
  if (Buffer.isBuffer(chunk) && MARKS.some((mark) => chunk.includes(mark))) {
    const [said] = SCRIPT_ERROR.exec(chunk.toString("latin1")) ?? [];
    if (said !== undefined) foundErrors.push(said);
  }
  return Readable.prototype.push.call(this, chunk, encoding);
};

afterEach(() => {
  expect(foundErrors.splice(0), "errors of scripts").toEqual([]);
});
