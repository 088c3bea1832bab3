// A credential, a claim's id, a reference and a session's id are secrets: nothing that people or tools see has them.

import { expect, test } from "vitest";
import { createLocks } from "../../src/client/locks.ts";
import { server as serverDriver } from "../../src/drivers/server/driver.ts";
import { newId, tagOf } from "../../src/ids.ts";
import { leakCheck } from "../support/leak-check.ts";
import { RawClient, rawAddress } from "../support/raw-client.ts";
import { until } from "../support/wait-for.ts";
import { accessFor, known } from "./accounts.ts";
import { claimOf, cleanUp, client, held, later, running } from "./support.ts";

leakCheck();
cleanUp();

test("no log line, error, list, event or answer to another has a secret of a client", async () => {
  const [ana, ops] = [known("ana"), known("ops")];
  const it = await running({ access: accessFor(ana, ops), limits: { refusalMs: 0 } });
  const address = it.addresses[0] as string;
  const seen: string[] = [];
  const look = (what: unknown): void =>
    void seen.push(JSON.stringify(what, (_, part) => (typeof part === "bigint" ? String(part) : part)));
  const failed = async (work: Promise<unknown>): Promise<void> => {
    const error = await work.then(
      () => null,
      (reason: Error) => reason,
    );
    expect(error).not.toBe(null);
    for (let at: unknown = error; at instanceof Error; at = at.cause) seen.push(`${at.stack} ${JSON.stringify(at)}`);
  };

  const watcher = await RawClient.open(rawAddress(address), { credential: ops.credential });
  later(() => watcher.end());
  watcher.socket.on("data", (text: unknown) => seen.push(String(text)));
  await watcher.call("watch", "");

  const session = newId();
  const mine = await RawClient.open(rawAddress(address), { credential: ana.credential, session });
  later(() => mine.end());
  const { driver } = await client(address, { credential: ana.credential });
  const [claim, waiting, detached] = [claimOf("k", { label: "me" }), claimOf("k"), claimOf("d")];
  const { token } = held(await driver.claim(claim));
  await driver.claim(waiting);
  held(await driver.claim(detached));
  await driver.detach?.([detached]);
  await mine.claim(newId(), "z");
  const locks = createLocks(serverDriver({ path: it.path, credential: ana.credential }));
  later(() => locks.close());
  const reference = await (await locks.acquire("r")).detach();

  // refusals of every kind
  const wrong = `hf1_${newId()}${newId()}`;
  await failed(client(address, { credential: wrong }));
  await failed(RawClient.open(rawAddress(address), { credential: ops.credential, session }));
  await failed(driver.claim(claimOf("f", { floor: 1n << 62n })));
  await failed(locks.attach(reference.replace(/.$/, "!")));
  const bad = await RawClient.open(rawAddress(address), { credential: ana.credential });
  later(() => bad.end());
  bad.say(`["claim",1,"${claim.id}","${ana.credential}"]`);
  await bad.closed();
  look(bad.lines);

  // what an operator sees
  look(await watcher.call("list", { prefix: "" }, 100));
  look(await watcher.call("history", "k", 100));
  look(await watcher.call("info"));
  await watcher.call("revoke", [["k", String(token), true, `why ${"\u001b[2J"}`]]);
  look(await driver.renew([claim]));
  look(it.stats());
  await until(() => seen.some((text) => text.includes('"removed"')), { within: 2_000, what: "the events" });
  for (const line of it.logged) look(line);

  const text = seen.join("\n");
  // what was looked at is not nothing
  expect(text).toContain(tagOf(claim.id));
  for (const word of [
    '"events"',
    "no valid credential was given",
    "a lock was taken away at once",
    "why",
    "more than a day",
  ]) {
    expect(text, word).toContain(word);
  }
  const secrets = [ana, ops].flatMap(({ credential, account }) => [credential, ...account.hashes]);
  secrets.push(wrong, session, watcher.session, claim.id, waiting.id, detached.id, reference);
  for (const secret of secrets) expect(text.includes(secret), `a secret of ${secret.length} characters`).toBe(false);
  expect(text).not.toContain("\u001b");
});
