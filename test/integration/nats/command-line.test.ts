// The command line on NATS: a run, the list, doctor, and the errors of a wrong url.

import { expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { cliSandbox } from "../../support/cli-sandbox.ts";
import { lockWithLibraries } from "../../support/installed-package.ts";
import { createBucket } from "../../support/stores/document-stores.ts";
import { startNats } from "../../support/stores/nats.ts";

const sandbox = cliSandbox();

test("a run holds its lock, which ls shows, and doctor has checks of the store", async () => {
  const server = await startNats();
  await createBucket({ kind: "nats", servers: [server.address], bucket: "locks" });
  const env = { HOLDFAST_URL: `nats://${server.address}?bucket=locks` };
  const held = sandbox.start(["run", "job", "--", "sleep", "60"], { env });
  await until(async () => /^job +held/m.test((await sandbox.run(["ls"], { env })).out), {
    within: 20_000,
    what: "the held lock",
  });
  expect((await sandbox.run(["run", "job", "--no-wait", "--", "true"], { env })).code).toBe(124);
  const doctor = await sandbox.run(["doctor"], { env });
  expect(doctor.out).toContain("one server keeps the bucket");
  expect(doctor.out).toContain("of 20 at once on one version, not more than one succeeded");
  held.process.kill("SIGTERM");
  await until(async () => (await sandbox.run(["ls"], { env })).out === "", { within: 20_000, what: "the release" });
  await server.dispose();
});

test("a bucket that does not exist is refused by its name", async () => {
  const server = await startNats();
  const env = { HOLDFAST_URL: `nats://ana:very-secret@${server.address}?bucket=missing` };
  const { code, err } = await sandbox.run(["run", "job", "--", "true"], { env });
  expect(code).toBe(77);
  expect(err).toContain('the bucket "missing" of NATS cannot be used: it does not exist');
  expect(err).not.toContain("very-secret");
  await server.dispose();
});

test.each([
  ["nats://127.0.0.1:1?bucket=locks", "NATS", "@nats-io/kv"],
  ["dynamodb:locks?region=eu-west-1", "DynamoDB", "@aws-sdk/client-dynamodb"],
  ["s3://locks?region=eu-west-1", "S3", "@aws-sdk/client-s3"],
])("without its library %s says what to install", async (url, name, library) => {
  expect(await lockWithLibraries(url, ["node_modules/pg"])).toBe(
    `LOCK_STORE_REFUSED locks in ${name} need the package "${library}", which is not installed: npm install ${library}`,
  );
});
