import { expect, test } from "vitest";
import { createDriver } from "../../../../src/client/driver-url.ts";
import { s3 } from "../../../../src/drivers/s3/driver.ts";

test.each([
  "s3://bucket",
  "s3://my.bucket-1/locks?region=eu-west-1",
  "S3://bucket/a/b/?endpoint=http://localhost:9000&region=local&documents=4&pollMs=500&tokenBase=5000000000",
])("%s names a bucket", async (url) => {
  const driver = await createDriver(url);
  expect(driver.name).toBe("s3");
});

const FORM = "url must have the form s3://bucket/prefix?region=eu-west-1, without user or password";

test.each([
  ["s3:", FORM],
  ["s3:bucket", FORM],
  ["s3://ana:secret@bucket", FORM],
  ["s3:///prefix", FORM],
  ["s3://bucket?endpiont=http://localhost", 'url has no parameter "endpiont" for s3:'],
  ["s3://bucket?endpoint=ftp://localhost", "endpoint must be a url of http: or https: without user and password"],
  ["s3://bucket?endpoint=http://ana:secret@localhost", "endpoint must be a url of http: or https: without user"],
  ["s3://bucket?pollMs=0", "pollMs must be a whole number of milliseconds"],
])("%s is refused", async (url, reason) => {
  const error = await createDriver(url).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(TypeError);
  expect((error as Error).message).toContain(reason);
  expect((error as Error).message).not.toContain("secret");
});

test.each([
  [{}, "bucket must be the name of a bucket"],
  [{ bucket: "locks", client: { send: 1 } }, "client must be a client of the AWS SDK, version 3"],
  [{ bucket: "locks", prefix: 7 }, "prefix must be a string"],
  [{ bucket: "locks", table: "x" }, 's3 has no option "table"'],
])("the options %j are refused", (options, reason) => {
  expect(() => s3(options as never)).toThrow(TypeError);
  expect(() => s3(options as never)).toThrow(reason);
});
