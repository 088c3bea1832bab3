// Which clients are admitted, and how the others are refused.

import { expect, test } from "vitest";
import { createAccessControl, hashCredential } from "../../../src/auth/access-control.ts";
import { createCredential } from "../../../src/auth/accounts-file.ts";
import { StoreRefusedError } from "../../../src/errors.ts";
import { until } from "../../../src/testing/until.ts";
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

const TCP_ADDRESS = "holdfast://127.0.0.1:0";
const ana = testAccount("ana");
const ben = testAccount("ben");

async function openRawClient(address: string, hello?: Readonly<Record<string, unknown>>): Promise<RawClient> {
  const rawClient = await RawClient.connect(parseRawAddress(address));
  onCleanup(() => rawClient.end());
  if (hello !== undefined)
    rawClient.write(`${JSON.stringify({ hello: { protocol: 1, session: rawClient.session, ...hello } })}\n`);
  return rawClient;
}

test.each(["unix", "tcp"])("over %s only a known credential is admitted", async (kind) => {
  const it = await startServer({
    access: createTestAccess(ana),
    ...(kind === "tcp" && { listen: TCP_ADDRESS }),
  });
  const address = it.addresses[0] as string;
  const { driver } = await openClient(address, { credential: ana.credential });
  expectHeld(await driver.claim(makeClaim("k")));
  for (const credential of [ben.credential, "", `${ana.credential} `, ana.account.hashes[0] as string]) {
    await expect(openClient(address, { credential })).rejects.toThrow(StoreRefusedError);
  }
  await expect(openClient(address)).rejects.toThrow("no valid credential was given");
  expect(it.stats().sessions).toBe(1);
});

test("every bad credential gets the same answer", async () => {
  const it = await startServer({ access: createTestAccess(ana) });
  const responses = new Set<string>();
  for (const hello of [{}, { credential: ben.credential }, { credential: "x" }, { credential: null }]) {
    const unknownClient = await openRawClient(it.addresses[0] as string, hello);
    await unknownClient.waitUntilClosed();
    responses.add(unknownClient.lines.join());
  }
  expect([...responses]).toEqual(['{"error":{"code":"AUTH","message":"no valid credential was given"}}']);
  expect(it.logged.filter((line) => line.includes("a client was refused"))).toHaveLength(4);
});

test("too many wrong credentials in a minute are logged once a minute; the right one is still admitted", async () => {
  let now = 0;
  const access = createAccessControl([ana.account], { failuresPerMinute: 3, now: () => now });
  const it = await startServer({ access, listen: TCP_ADDRESS });
  const address = it.addresses[0] as string;
  const codeOf = async (): Promise<string | null> => {
    const unknownClient = await openRawClient(address, { credential: "x" });
    await unknownClient.waitUntilClosed();
    return unknownClient.refusal;
  };
  expect([await codeOf(), await codeOf(), await codeOf(), await codeOf(), await codeOf()]).toEqual([
    ...["AUTH", "AUTH", "AUTH"],
    ...["LIMIT", "LIMIT"],
  ]);
  expect(it.logged.filter((line) => line.includes("a client was refused"))).toHaveLength(3);
  // the first refusal beyond the limit is logged; the others are counted a minute later
  expect(it.logged.filter((line) => line.includes("too many wrong credentials"))).toHaveLength(1);
  expect(it.logged).toHaveLength(4);
  expect(access.failureCount).toBe(5);
  await openClient(address, { credential: ana.credential });
  now = 60_000;
  expect(await codeOf()).toBe("AUTH");
});

test("a session accepts only the account that began it", async () => {
  const it = await startServer({ access: createTestAccess(ana, ben), listen: TCP_ADDRESS });
  const address = it.addresses[0] as string;
  const first = await openRawClient(address);
  await first.sendHello({ credential: ana.credential });
  await first.claim("a".repeat(26), "k");
  const impostor = await openRawClient(address, { session: first.session, credential: ben.credential });
  await impostor.waitUntilClosed();
  expect(impostor.refusal).toBe("AUTH");
  expect(first.isClosed).toBe(false);
});

test("two credentials of an account are valid at once; a reload that removes one ends only its connections", async () => {
  const next = createCredential();
  const access = createAccessControl([{ ...ana.account, hashes: [...ana.account.hashes, next.hash] }, ben.account]);
  const it = await startServer({ access, listen: TCP_ADDRESS });
  const address = it.addresses[0] as string;
  const [old, fresh, other] = [
    await openRawClient(address),
    await openRawClient(address),
    await openRawClient(address),
  ];
  await old.sendHello({ credential: ana.credential });
  await fresh.sendHello({ credential: next.credential });
  await other.sendHello({ credential: ben.credential });
  await old.claim("a".repeat(26), "k");
  access.replace([{ ...ana.account, hashes: [next.hash] }, ben.account]);
  await old.waitUntilClosed();
  expect(old.refusal).toBe("AUTH");
  // the same account continues with its claims
  expect((await fresh.call("renew", ["a".repeat(26)]))[0]).toContain("held");
  expect(await other.call("ping")).toEqual([]);
  expect([fresh.isClosed, other.isClosed]).toEqual([false, false]);
  await expect(openClient(address, { credential: ana.credential })).rejects.toThrow("no valid credential");
});

test("a disconnected client returns with its current credential, and loses none of its claims", async () => {
  const next = createCredential();
  let credential = ana.credential;
  const access = createTestAccess(ana);
  const it = await startServer({ access });
  const { driver } = await openClient(it.addresses[0] as string, { credential: () => credential });
  const claim = makeClaim("k", { ttlMs: "session" });
  const { token } = expectHeld(await driver.claim(claim));
  credential = next.credential;
  access.replace([{ ...ana.account, hashes: [next.hash] }]);
  const answers = await until(() => driver.renew([claim]).catch(() => null), {
    within: 5_000,
    what: "the client to be back",
  });
  expect(answers).toMatchObject([{ state: "held", token }]);
});

test("on a Unix socket a disconnection by the server does not end the session: claims of a removed credential stay until their leases end", async () => {
  const access = createTestAccess(ana, ben);
  const it = await startServer({ access });
  const address = it.addresses[0] as string;
  const anaClient = await openClient(address, { credential: ana.credential });
  const next = await openClient(address, { credential: ben.credential });
  const [claimA, claimB] = [makeClaim("k", { ttlMs: 2_000 }), makeClaim("k", { ttlMs: 30_000 })];
  const startedAt = performance.now();
  const { token } = expectHeld(await anaClient.driver.claim(claimA));
  expect(await next.driver.claim(claimB)).toMatchObject({ state: "waiting" });
  access.replace([ben.account]);
  const granted = await next.pushes.waitForGrant(claimB);
  expect(performance.now() - startedAt).toBeGreaterThan(1_990);
  expect(granted.token).toBeGreaterThan(token);
});

test("the hash of a credential does not reveal its account, and two credentials never share a hash", () => {
  const credentials = Array.from({ length: 1_000 }, createCredential);
  expect(new Set(credentials.map(({ credential }) => credential)).size).toBe(1_000);
  expect(
    credentials.every(
      ({ credential, hash }) => /^hf1_[a-z2-7]{52}$/.test(credential) && hashCredential(credential) === hash,
    ),
  ).toBe(true);
});
