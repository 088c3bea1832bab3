import { expect, test } from "vitest";
import { createDriver } from "../../../../src/client/driver-url.ts";
import { nats } from "../../../../src/drivers/nats/driver.ts";

test.each([
  "nats://a?bucket=locks",
  "nats://a:4222,b:4223,[::1]:4224/?bucket=locks_1",
  "nats://ana:secret@a:4222?bucket=locks&documents=4&pollMs=500&tokenBase=5000000000",
  "nats://s3cr3t@a?bucket=locks",
  "NATS://a?bucket=locks",
])("%s names a bucket", async (url) => {
  const driver = await createDriver(url);
  expect(driver.name).toBe("nats");
});

const FORM = "url must have the form nats://user:password@host:4222,host:4222?bucket=locks";

test.each([
  ["nats:", FORM],
  ["nats://ana:secret@a:4222", FORM],
  ["nats:///?bucket=locks", FORM],
  ["nats://ana:secret@a/path?bucket=locks", FORM],
  ["nats://ana:secret@a:x?bucket=locks", 'servers must be a list of "host:4222"'],
  ["nats://a,?bucket=locks", 'servers must be a list of "host:4222"'],
  ["nats://ana:secret%@a?bucket=locks", "percent-encoded"],
  ["nats://a?bucket=", 'bucket must be letters, digits, "-" and "_"'],
  ["nats://a?bucket=a.b", 'bucket must be letters, digits, "-" and "_"'],
  ["nats://a?bucket=locks&ttl=1s", 'url has no parameter "ttl" for nats:'],
  ["nats://a?bucket=locks&documents=0", "documents must be a whole number from 1 to 1024"],
  ["nats://a?bucket=locks&documents=many", 'documents must be a number, not "many"'],
  ["nats://a?bucket=locks&pollMs=-1", 'pollMs must be a number, not "-1"'],
  ["nats://a?bucket=locks&tokenBase=1.5", 'tokenBase must be a number, not "1.5"'],
])("%s is refused", async (url, reason) => {
  const error = await createDriver(url).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(TypeError);
  expect((error as Error).message).toContain(reason);
  expect((error as Error).message).not.toContain("secret");
});

test.each([
  [{}, "bucket must be"],
  [{ bucket: "locks", connection: {} }, "connection must be a connection of @nats-io/transport-node"],
  [{ bucket: "locks", servers: "a" }, 'servers must be a list of "host:4222"'],
  [{ bucket: "locks", password: 7 }, "password must be a string"],
  [{ bucket: "locks", connectTimeout: "soon" }, "connectTimeout"],
  [{ bucket: "locks", prefix: "x" }, 'nats has no option "prefix"'],
])("the options %j are refused", (options, reason) => {
  expect(() => nats(options as never)).toThrow(TypeError);
  expect(() => nats(options as never)).toThrow(reason);
});
