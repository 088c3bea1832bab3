import { expect, test } from "vitest";
import { createDriver } from "../../../../src/client/driver-url.ts";

test.each([
  "zookeeper://a",
  "zookeeper://a:2181,b:2182,[::1]:2183/app/locks",
  "zookeeper://a/?root=/mine&sessionMs=10000",
  "zookeepers://a:2281,b:2281/app?servername=zk.internal",
  "zookeeper://a?family=readWrite&fair=false&tokenBase=5000000000",
])("%s names an ensemble", async (url) => {
  const driver = await createDriver(url);
  expect(driver.name).toBe("zookeeper");
});

test.each([
  ["zookeeper:", "zookeeper://host:2181"],
  ["zookeeper:///chroot", "zookeeper://host:2181"],
  ["zookeeper://ana:secret@a:2181", "without user, password"],
  ["zookeeper://a:0", 'host:port, not "a:0"'],
  ["zookeeper://a:2181,", 'host:port, not ""'],
  ["zookeeper://a:x", "host:port"],
  ["zookeeper://a?rot=/x", 'no parameter "rot"'],
  ["zookeeper://a?sessionMs=soon", "sessionMs"],
  ["zookeeper://a?sessionMs=", "sessionMs"],
  ["zookeeper://a?sessionMs=3000000000", "sessionMs must be a whole number of milliseconds from 100 to 2147483647"],
  ["zookeeper://a?ca=/ca.pem", 'no parameter "ca" for zookeeper:'],
  ["zookeepers://a?cert=/cert.pem", "both cert and key, or neither"],
  ["zookeeper://a?family=semaphore", 'family must be "mutex" or "readWrite"'],
  ["zookeeper://a?fair=no", "fair must be true or false"],
  ["zookeeper://a?tokenBase=-1", "tokenBase must be a number"],
  ["zookeeper://a?root=x", "root must begin with a slash"],
  ["zookeeper://a/b//c", "chroot must not have an empty part"],
])("%s is refused", async (url, reason) => {
  const error = await createDriver(url).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(TypeError);
  expect((error as Error).message).toContain(reason);
  expect((error as Error).message).not.toContain("secret");
});

test("an unreadable file in a url is named", async () => {
  const error = await createDriver("zookeepers://a?ca=/nowhere/ca.pem").catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({
    code: "LOCK_STORE_REFUSED",
    message: expect.stringContaining("ca names /nowhere/ca.pem"),
  });
});
