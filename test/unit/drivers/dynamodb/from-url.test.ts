import { expect, test } from "vitest";
import { createDriver } from "../../../../src/client/driver-url.ts";
import { dynamodb } from "../../../../src/drivers/dynamodb/driver.ts";

test.each([
  "dynamodb:locks",
  "dynamodb:my.Locks_1?region=eu-west-1&documents=4",
  "dynamodb:locks?endpoint=http://localhost:8000&region=local&pollMs=500&tokenBase=5000000000",
])("%s names a table", async (url) => {
  const driver = await createDriver(url);
  expect(driver.name).toBe("dynamodb");
});

const FORM = "url must have the form dynamodb:table?region=eu-west-1, without user or password";

test.each([
  ["dynamodb:", FORM],
  ["dynamodb://locks", FORM],
  ["dynamodb:ana:secret@locks", FORM],
  ["dynamodb:locks/prefix", FORM],
  ["dynamodb:locks?regoin=eu-west-1", 'url has no parameter "regoin" for dynamodb:'],
  ["dynamodb:locks?secretAccessKey=secret", 'url has no parameter "secretAccessKey" for dynamodb:'],
  ["dynamodb:locks?endpoint=localhost:8000", "endpoint must be a url of http: or https: without user and password"],
  ["dynamodb:locks?endpoint=http://ana:secret@localhost", "endpoint must be a url of http: or https: without user"],
  ["dynamodb:locks?documents=1000000", "documents must be a whole number from 1 to 1024"],
])("%s is refused", async (url, reason) => {
  const error = await createDriver(url).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(TypeError);
  expect((error as Error).message).toContain(reason);
  expect((error as Error).message.replace("secretAccessKey", "")).not.toContain("secret");
});

test.each([
  [{}, "table must be the name of a table, or its ARN"],
  [{ table: "" }, "table must be the name of a table, or its ARN"],
  [{ table: "locks", client: {} }, "client must be a client of the AWS SDK, version 3"],
  [{ table: "locks", region: 7 }, "region must be a string"],
  [{ table: "locks", prefix: "x" }, 'dynamodb has no option "prefix"'],
])("the options %j are refused", (options, reason) => {
  expect(() => dynamodb(options as never)).toThrow(TypeError);
  expect(() => dynamodb(options as never)).toThrow(reason);
});
