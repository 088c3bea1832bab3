import { expect, test } from "vitest";
import { driverFor } from "../../src/client/drivers.ts";

test.each([
  "zookeeper://a",
  "zookeeper://a:2181,b:2182,[::1]:2183/app/locks",
  "zookeeper://a/?root=/mine&sessionMs=10000",
])("%s names an ensemble", async (url) => {
  const driver = await driverFor(url);
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
  ["zookeeper://a?root=x", "root must begin with a slash"],
  ["zookeeper://a/b//c", "chroot must not have an empty part"],
])("%s is refused", async (url, why) => {
  const error = await driverFor(url).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(TypeError);
  expect((error as Error).message).toContain(why);
  expect((error as Error).message).not.toContain("secret");
});
