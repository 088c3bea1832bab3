// Who is let in, and what becomes of those who are not.

import { expect, test } from "vitest";
import { FatalDriverError } from "../../src/errors.ts";
import { createAccess, hashOf } from "../../src/server/access.ts";
import { newCredential } from "../../src/server/credentials.ts";
import { leakCheck } from "../support/leak-check.ts";
import { RawClient, rawAddress } from "../support/raw-client.ts";
import { until } from "../support/wait-for.ts";
import { accessFor, known } from "./accounts.ts";
import { claimOf, cleanUp, client, held, later, running } from "./support.ts";

leakCheck();
cleanUp();

const TCP = "tcp://127.0.0.1:0";
const ana = known("ana");
const ben = known("ben");

async function raw(address: string, hello?: Readonly<Record<string, unknown>>): Promise<RawClient> {
  const it = await RawClient.dial(rawAddress(address));
  later(() => it.end());
  if (hello !== undefined) it.write(`${JSON.stringify({ hello: { protocol: 1, session: it.session, ...hello } })}\n`);
  return it;
}

test.each(["unix", "tcp"])("over %s only a credential that is known is let in", async (kind) => {
  const it = await running({
    access: accessFor(ana),
    limits: { refusalMs: 10 },
    ...(kind === "tcp" && { listen: TCP }),
  });
  const address = it.addresses[0] as string;
  const { driver } = await client(address, { credential: ana.credential });
  held(await driver.claim(claimOf("k")));
  for (const credential of [ben.credential, "", `${ana.credential} `, ana.account.hashes[0] as string]) {
    await expect(client(address, { credential })).rejects.toThrow(FatalDriverError);
  }
  await expect(client(address)).rejects.toThrow("no valid credential was given");
  expect(it.stats().sessions).toBe(1);
});

test("whatever is wrong with a credential, the answer is the same, and comes late", async () => {
  const it = await running({ access: accessFor(ana), limits: { refusalMs: 150 } });
  const said = new Set<string>();
  for (const hello of [{}, { credential: ben.credential }, { credential: "x" }, { credential: null }]) {
    const began = performance.now();
    const stranger = await raw(it.addresses[0] as string, hello);
    await stranger.closed();
    expect(performance.now() - began).toBeGreaterThan(140);
    said.add(stranger.lines.join());
  }
  expect([...said]).toEqual(['{"error":{"code":"AUTH","message":"no valid credential was given"}}']);
  expect(it.logged.filter((line) => line.includes("was not let in"))).toHaveLength(4);
});

test("while some wait to be refused others are served; of those who wait there are only so many", async () => {
  const it = await running({ access: accessFor(ana), limits: { refusalMs: 60_000, refusals: 2 } });
  const address = it.addresses[0] as string;
  const slow = [await raw(address, { credential: "x" }), await raw(address, { credential: "x" })];
  await until(() => it.logged.length === 2, { within: 2_000, what: "two refusals to be told" });
  // there is no room to let a third one wait
  const third = await raw(address, { credential: "x" });
  await third.closed(2_000);
  expect(third.refusal).toBe("AUTH");
  expect(slow.map(({ isClosed }) => isClosed)).toEqual([false, false]);
  // what they say meanwhile is not read
  slow[0]?.write(
    `${JSON.stringify({ hello: { protocol: 1, session: slow[0].session, credential: ana.credential } })}\n`,
  );
  const { driver } = await client(address, { credential: ana.credential });
  held(await driver.claim(claimOf("k")));
  expect(it.stats().sessions).toBe(1);
});

test("too many wrong credentials in a minute are refused at once and told of once a minute, the right one is still let in", async () => {
  let now = 0;
  const access = createAccess([ana.account], { failuresPerMinute: 3, now: () => now });
  const it = await running({ access, limits: { refusalMs: 0 }, listen: TCP });
  const address = it.addresses[0] as string;
  const codeOf = async (): Promise<string | null> => {
    const stranger = await raw(address, { credential: "x" });
    await stranger.closed();
    return stranger.refusal;
  };
  expect([await codeOf(), await codeOf(), await codeOf(), await codeOf(), await codeOf()]).toEqual([
    ...["AUTH", "AUTH", "AUTH"],
    ...["LIMIT", "LIMIT"],
  ]);
  expect(it.logged.filter((line) => line.includes("was not let in"))).toHaveLength(3);
  // the first of those beyond; the others are told of a minute later
  expect(it.logged.filter((line) => line.includes("too many wrong credentials"))).toHaveLength(1);
  expect(it.logged).toHaveLength(4);
  expect(access.failures).toBe(5);
  await client(address, { credential: ana.credential });
  now = 60_000;
  expect(await codeOf()).toBe("AUTH");
});

test("a session answers only to the account that it began with", async () => {
  const it = await running({ access: accessFor(ana, ben), limits: { refusalMs: 0 }, listen: TCP });
  const address = it.addresses[0] as string;
  const first = await raw(address);
  await first.greet({ credential: ana.credential });
  await first.claim("a".repeat(26), "k");
  const thief = await raw(address, { session: first.session, credential: ben.credential });
  await thief.closed();
  expect(thief.refusal).toBe("AUTH");
  expect(first.isClosed).toBe(false);
});

test("two credentials of an account are good at once; the reload that takes one away ends its connections alone", async () => {
  const next = newCredential();
  const access = createAccess([{ ...ana.account, hashes: [...ana.account.hashes, next.hash] }, ben.account]);
  const it = await running({ access, listen: TCP, limits: { refusalMs: 0 } });
  const address = it.addresses[0] as string;
  const [old, fresh, other] = [await raw(address), await raw(address), await raw(address)];
  await old.greet({ credential: ana.credential });
  await fresh.greet({ credential: next.credential });
  await other.greet({ credential: ben.credential });
  await old.claim("a".repeat(26), "k");
  access.replace([{ ...ana.account, hashes: [next.hash] }, ben.account]);
  await old.closed();
  expect(old.refusal).toBe("AUTH");
  // the same account goes on with what it has placed
  expect((await fresh.call("renew", ["a".repeat(26)]))[0]).toContain("held");
  expect(await other.call("ping")).toEqual([]);
  expect([fresh.isClosed, other.isClosed]).toEqual([false, false]);
  await expect(client(address, { credential: ana.credential })).rejects.toThrow("no valid credential");
});

test("a client that is thrown out comes back by the credential it has then, and nothing it holds is lost", async () => {
  const next = newCredential();
  let credential = ana.credential;
  const access = accessFor(ana);
  const it = await running({ access });
  const { driver } = await client(it.addresses[0] as string, { credential: () => credential });
  const claim = claimOf("k", { ttlMs: "session" });
  const { token } = held(await driver.claim(claim));
  credential = next.credential;
  access.replace([{ ...ana.account, hashes: [next.hash] }]);
  const again = await until(() => driver.renew([claim]).catch(() => null), {
    within: 5_000,
    what: "the client to be back",
  });
  expect(again).toMatchObject([{ state: "held", token }]);
});

test("on a Unix socket the server's own cut is no death: what a removed credential held stays until its lease ends", async () => {
  const access = accessFor(ana, ben);
  const it = await running({ access });
  const address = it.addresses[0] as string;
  const gone = await client(address, { credential: ana.credential });
  const next = await client(address, { credential: ben.credential });
  const [a, b] = [claimOf("k", { ttlMs: 2_000 }), claimOf("k", { ttlMs: 30_000 })];
  const began = performance.now();
  const { token } = held(await gone.driver.claim(a));
  expect(await next.driver.claim(b)).toMatchObject({ state: "waiting" });
  access.replace([ben.account]);
  const granted = await next.pushes.granted(b);
  expect(performance.now() - began).toBeGreaterThan(1_990);
  expect(granted.token).toBeGreaterThan(token);
});

test("the hash of a credential tells nobody its account, and two credentials never meet", () => {
  const all = Array.from({ length: 1_000 }, newCredential);
  expect(new Set(all.map(({ credential }) => credential)).size).toBe(1_000);
  expect(
    all.every(({ credential, hash }) => /^hf1_[a-z2-7]{52}$/.test(credential) && hashOf(credential) === hash),
  ).toBe(true);
});
