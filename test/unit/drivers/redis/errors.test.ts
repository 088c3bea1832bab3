import { expect, test } from "vitest";
import { explainError, toOpenError } from "../../../../src/drivers/redis/errors.ts";

test.each([
  [
    "NOPERM User app has no permissions to run the 'script|load' command",
    /SCRIPT\|LOAD \(NOPERM\): grant \+script\|load$/,
  ],
  ["NOPERM this user has no permissions to access one of the channels used as arguments", /Holdfast's channels/],
  ["NOPERM No permissions to access a key", /Holdfast's keys/],
  ["ERR ACL failure in script: User app has no permissions to run the 'zadd' command", /ZADD .*grant \+zadd/],
  ["ERR The user executing the script can't run this command or subcommand", /holdfast doctor shows which$/],
  ["READONLY You can't write against a read only replica. script: 0123", /^redis: this is a replica \(READONLY\)/],
  ["ERR invalid password", /refuses the login \(invalid password\)/],
])("%s: explained, whatever the version of the server", (message, says) => {
  expect(explainError(message)?.message).toMatch(says);
});

test.each([
  "ERR wrong number of arguments",
  "WRONGTYPE Operation against a key holding the wrong kind of value",
  "BUSY Redis is busy running a script.",
  "CLUSTERDOWN Hash slot not served",
])("%s: passed on unchanged", (message) => {
  expect(explainError(message)).toBeNull();
});

test("a slot that has moved is refused, unless the client is that of a Cluster, which finds its new master soon", () => {
  const explain = (isCluster: boolean): unknown =>
    toOpenError(explainError("MOVED 1 b:6379"), { label: "a:6379", isTls: false, isViaSentinel: false }, isCluster);
  expect(explain(false)).toMatchObject({ code: "LOCK_STORE_REFUSED" });
  expect(explain(true)).not.toMatchObject({ code: "LOCK_STORE_REFUSED" });
});

test("a replica is refused, unless Sentinels named it, which means that roles are changing", () => {
  const explain = (isViaSentinel: boolean): unknown =>
    toOpenError(explainError("READONLY You can't write"), { label: "one:6379", isTls: false, isViaSentinel }, false);
  expect(explain(false)).toMatchObject({ code: "LOCK_STORE_REFUSED" });
  expect(explain(true)).toMatchObject({ message: expect.stringMatching(/^redis one:6379: this is a replica/) });
  expect(explain(true)).not.toMatchObject({ code: "LOCK_STORE_REFUSED" });
});
