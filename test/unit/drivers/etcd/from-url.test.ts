import { expect, test } from "vitest";
import { createDriver } from "../../../../src/client/driver-url.ts";

test.each([
  "etcd://a",
  "ETCD://a:2379,b:2380,[::1]:2381/",
  "etcd://ana:p%40ss@a?prefix=&compatible=false&tokenBase=5000000000",
  "etcds://a:2379,b?servername=etcd.internal",
])("%s names a cluster", async (url) => {
  const driver = await createDriver(url);
  expect(driver.name).toBe("etcd");
});

test.each([
  ["etcd:", "etcd://host:2379"],
  ["etcd:///", "etcd://host:2379"],
  ["etcd://a/locks", "without path or fragment"],
  ["etcd://a#x", "without path or fragment"],
  ["etcd://ana@a", "a user and a password, or neither"],
  ["etcd://:secret@a", "a user and a password, or neither"],
  ["etcd://ana:secret:secret@a", "a user and a password, or neither"],
  ["etcd://ana:secret%@a", "percent-encoded properly"],
  ["etcd://a:0", 'host:port, not "a:0"'],
  ["etcd://a:2379,", 'host:port, not ""'],
  ["etcd://a?perfix=x", 'no parameter "perfix"'],
  ["etcd://a?compatible=no", "compatible must be true or false"],
  ["etcd://a?tokenBase=-1", "tokenBase must be a number"],
  ["etcd://a?prefix=a%00b", "prefix must be a text without control characters"],
  ["etcd://a?ca=/ca.pem", 'no parameter "ca" for etcd:'],
  ["etcds://a?cert=/cert.pem", "both cert and key, or neither"],
])("%s is refused", async (url, reason) => {
  const error = await createDriver(url).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(TypeError);
  expect((error as Error).message).toContain(reason);
  expect((error as Error).message).not.toContain("secret");
});
