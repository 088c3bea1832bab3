// A credential, a claim's id, a reference and a session's id are secrets: no output for people or tools contains them.

import { expect, test } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import { lockServer } from "../../../src/drivers/server/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { publicTag, randomId } from "../../../src/util/ids.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { parseRawAddress, RawClient } from "../../support/raw-client.ts";
import {
  cleanUpAfterEach,
  expectHeld,
  makeClaim,
  onCleanup,
  openClient,
  startServer,
} from "../../support/server-fixture.ts";
import { createTestAccess, testAccount } from "../../support/test-accounts.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

test("no log line, error, list, event or answer to another client contains a client's secret", async () => {
  const [ana, ops] = [testAccount("ana"), testAccount("ops")];
  const it = await startServer({ access: createTestAccess(ana, ops) });
  const address = it.addresses[0] as string;
  const texts: string[] = [];
  const look = (value: unknown): void =>
    void texts.push(JSON.stringify(value, (_, part) => (typeof part === "bigint" ? String(part) : part)));
  const failed = async (call: Promise<unknown>): Promise<void> => {
    const error = await call.then(
      () => null,
      (reason: Error) => reason,
    );
    expect(error).not.toBe(null);
    for (let cause: unknown = error; cause instanceof Error; cause = cause.cause)
      texts.push(`${cause.stack} ${JSON.stringify(cause)}`);
  };

  const watcher = await RawClient.open(parseRawAddress(address), { credential: ops.credential });
  onCleanup(() => watcher.end());
  watcher.socket.on("data", (text: unknown) => texts.push(String(text)));
  await watcher.call("watch", "");

  const session = randomId();
  const ownRawClient = await RawClient.open(parseRawAddress(address), { credential: ana.credential, session });
  onCleanup(() => ownRawClient.end());
  const { driver } = await openClient(address, { credential: ana.credential });
  const [claim, waiting, detached] = [makeClaim("k", { label: "me" }), makeClaim("k"), makeClaim("d")];
  const { token } = expectHeld(await driver.claim(claim));
  await driver.claim(waiting);
  expectHeld(await driver.claim(detached));
  await driver.detach?.([detached]);
  await ownRawClient.claim(randomId(), "z");
  const locks = createLocks(lockServer({ path: it.path, credential: ana.credential }));
  onCleanup(() => locks.close());
  const reference = await (await locks.acquire("r")).detach();

  // refusals of every kind
  const wrongCredential = `hf1_${randomId()}${randomId()}`;
  await failed(openClient(address, { credential: wrongCredential }));
  await failed(RawClient.open(parseRawAddress(address), { credential: ops.credential, session }));
  await failed(driver.claim(makeClaim("f", { floor: 1n << 62n })));
  await failed(locks.attach(reference.replace(/.$/, "!")));
  const rawClient = await RawClient.open(parseRawAddress(address), { credential: ana.credential });
  onCleanup(() => rawClient.end());
  rawClient.send(`["claim",1,"${claim.id}","${ana.credential}"]`);
  await rawClient.waitUntilClosed();
  look(rawClient.lines);

  // an operator's views
  look(await watcher.call("list", { prefix: "" }, 100));
  look(await watcher.call("history", "k", 100));
  look(await watcher.call("info"));
  await watcher.call("revoke", [["k", String(token), true, `why ${"\u001b[2J"}`]]);
  look(await driver.renew([claim]));
  look(it.stats());
  await until(() => texts.some((text) => text.includes('"removed"')), { within: 2_000, what: "the events" });
  for (const line of it.logged) look(line);

  const text = texts.join("\n");
  // the searched text is not empty
  expect(text).toContain(publicTag(claim.id));
  for (const name of [
    '"events"',
    "no valid credential was given",
    "a lock was removed at once",
    "why",
    "more than a day",
  ]) {
    expect(text, name).toContain(name);
  }
  const secrets = [ana, ops].flatMap(({ credential, account }) => [credential, ...account.hashes]);
  secrets.push(wrongCredential, session, watcher.session, claim.id, waiting.id, detached.id, reference);
  for (const secret of secrets) expect(text.includes(secret), `a secret of ${secret.length} characters`).toBe(false);
  expect(text).not.toContain("\u001b");
});
