// Access control: TLS, SASL and digest credentials with a real server, and the ACL that follows from them.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { ZooKeeper } from "../../../src/drivers/zookeeper/client/zookeeper.ts";
import type { ZooKeeperDriverOptions } from "../../../src/drivers/zookeeper/driver.ts";
import { zookeeper } from "../../../src/drivers/zookeeper/driver.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { createAuthority } from "../../support/certificates.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import type { ZooKeeperServer } from "../../support/stores/zookeeper.ts";
import { startZooKeeper } from "../../support/stores/zookeeper.ts";
import { makeSessionClaim } from "../../support/stores/zookeeper-fixture.ts";
import { setAcl } from "../../support/stores/zookeeper-requests.ts";

const SESSION_MS = 20_000;
const issuer = createAuthority();
const BOB = { user: "bob", password: 'builder"s \\ secret' };
const ANA = { scheme: "digest", auth: "ana:anasecret" };
let server: ZooKeeperServer;
const openResources: { close(): Promise<void> }[] = [];

beforeAll(async () => {
  const certificate = issuer.issue(["localhost", "127.0.0.1"]);
  // JAAS has its own escapes in its file: characters it cannot represent are not tested here
  const users = { bob: "bobsecret" };
  server = await startZooKeeper({ secure: { certificate, users } });
}, 60_000);

afterAll(() => server[Symbol.asyncDispose]());

afterEach(async () => {
  await Promise.all(openResources.splice(0).map((resource) => resource.close()));
});

function createDriver(options: Partial<ZooKeeperDriverOptions> = {}): Driver {
  return zookeeper({ servers: [server.address], root: "/open", sessionMs: SESSION_MS, ...options });
}

async function openDriver(options: Partial<ZooKeeperDriverOptions> = {}): Promise<Driver> {
  const driver = createDriver(options);
  openResources.push(driver);
  await driver.open(NO_EVENTS);
  return driver;
}

async function openClient(options: Partial<ConstructorParameters<typeof ZooKeeper>[0]> = {}): Promise<ZooKeeper> {
  const zk = new ZooKeeper({ servers: [server.address], sessionMs: SESSION_MS, ...options });
  openResources.push(zk);
  await zk.open();
  return zk;
}

test("a lock is held over TLS with a verified certificate", async () => {
  const locks = createLocks(
    createDriver({ servers: [server.secureAddress], tls: { ca: issuer.cert, servername: "localhost" } }),
    {
      ttl: "session",
    },
  );
  openResources.push(locks);
  await locks.using("encrypted", async (lock) => expect(lock.token).toBeGreaterThan(0n));
});

test("a url over TLS names its files, for programs and for the command line", async () => {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-zk-url-"));
  const ca = join(folder, "ca.pem");
  writeFileSync(ca, issuer.cert);
  const locks = await connect(`zookeepers://127.0.0.1:${server.secureAddress.port}/by-url?ca=${ca}`, {
    ttl: "session",
  });
  openResources.push(locks);
  await locks.using("k", async (lock) => expect(lock.token).toBeGreaterThan(0n));
  rmSync(folder, { recursive: true });
});

test("without a server name the certificate must be for the address", async () => {
  const driver = await openDriver({ servers: [server.secureAddress], tls: { ca: issuer.cert } });
  expect((await driver.list({ prefix: "" }, { max: 1 })).items).toEqual([]);
});

test("a certificate for another name is refused, and the message says so", async () => {
  const otherAuthority = createAuthority("somebody else");
  const driver = createDriver({
    servers: [server.secureAddress],
    tls: { ca: otherAuthority.cert, servername: "localhost" },
    connectTimeout: 3_000,
  });
  const error = await driver.open(NO_EVENTS).catch((thrown: unknown) => thrown as Error);
  expect(`${(error as Error).message} ${((error as Error).cause as Error | undefined)?.message ?? ""}`).toMatch(
    /certificate|self.signed|verify/i,
  );
});

test.each(["plain", "TLS"])(
  "SASL DIGEST-MD5 over %s: the server identifies the client, and its nodes are for it alone",
  async (security) => {
    const isTls = security === "TLS";
    const driver = await openDriver({
      root: `/sasl-${security}`,
      sasl: { user: "bob", password: "bobsecret" },
      ...(isTls && { servers: [server.secureAddress], tls: { ca: issuer.cert, servername: "localhost" } }),
    });
    const claim = makeSessionClaim("mine");
    expect((await driver.claim(claim)).state).toBe("held");
    const unauthorizedClient = await openClient();
    await expect(unauthorizedClient.children(`/sasl-${security}/mine`)).rejects.toMatchObject({ code: "NO_AUTH" });
    const bob = await openClient({ sasl: { user: "bob", password: "bobsecret" } });
    const { names } = await bob.children(`/sasl-${security}/mine`);
    expect(await bob.getAcl(`/sasl-${security}/mine/${names[0]}`)).toEqual([{ perms: 31, scheme: "sasl", id: "bob" }]);
    await driver.release(toReleases(claim));
  },
);

test("a wrong SASL password is refused permanently, and never shown", async () => {
  const driver = createDriver({ sasl: { user: "bob", password: BOB.password } });
  const error = await driver.open(NO_EVENTS).catch((thrown: unknown) => thrown as Error);
  expect(error).toMatchObject({ code: "LOCK_STORE_REFUSED" });
  expect(JSON.stringify(error, Object.getOwnPropertyNames(error))).not.toContain("builder");
});

test("with a digest credential nodes are for their owner alone, and any other client is refused permanently", async () => {
  const owner = await openDriver({ root: "/closed", auth: [ANA] });
  const claim = makeSessionClaim("private");
  expect((await owner.claim(claim)).state).toBe("held");
  const ana = await openClient({ auth: [ANA] });
  const [acl] = await ana.getAcl("/closed/private");
  expect(acl).toMatchObject({ perms: 31, scheme: "digest", id: expect.stringMatching(/^ana:/) });
  const unauthorizedDriver = await openDriver({ root: "/closed" });
  const otherClaim = makeSessionClaim("private");
  await expect(unauthorizedDriver.claim(otherClaim)).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED" });
  expect(await unauthorizedDriver.release(toReleases(otherClaim))).toEqual([false]);
  await owner.release(toReleases(claim));
});

test("a given ACL is set on all nodes", async () => {
  const acl = [
    { perms: 31, scheme: "auth", id: "" },
    { perms: 1, scheme: "world", id: "anyone" },
  ];
  const owner = await openDriver({ root: "/readable", auth: [ANA], acl });
  const claim = makeSessionClaim("seen");
  await owner.claim(claim);
  const unauthorizedClient = await openClient();
  const { names } = await unauthorizedClient.children("/readable/seen");
  expect(names).toHaveLength(1);
  await expect(unauthorizedClient.delete(`/readable/seen/${names[0]}`)).rejects.toMatchObject({ code: "NO_AUTH" });
  await owner.release(toReleases(claim));
});

test("a client without rights at the servers' root uses a path that exists", async () => {
  const admin = await openClient({ auth: [{ scheme: "digest", auth: "admin:adminsecret" }] });
  await admin.create("/theirs", { acl: [{ perms: 31, scheme: "world", id: "anyone" }] });
  const before = await admin.getAcl("/");
  await setAcl(admin, "/", [
    { perms: 31, scheme: "auth", id: "" },
    { perms: 1, scheme: "world", id: "anyone" },
  ]);
  try {
    const driver = await openDriver({ chroot: "/theirs", root: "/deep/locks" });
    const claim = makeSessionClaim("key");
    expect((await driver.claim(claim)).state).toBe("held");
    await driver.release(toReleases(claim));
    await expect(createDriver({ root: "/refused" }).open(NO_EVENTS)).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
    });
  } finally {
    await setAcl(admin, "/", before);
  }
});

test("doctor reports a single server, a limited session, and nodes that any client may delete", async () => {
  const longSessionDriver = await openDriver({ sessionMs: 90_000 });
  const checks = new Map((await longSessionDriver.diagnose?.())?.map((check) => [check.name, check]));
  expect(checks.get("mode")).toMatchObject({ status: "warn", message: "a single server" });
  expect(checks.get("session")).toMatchObject({
    status: "warn",
    message: expect.stringContaining("40000 ms, although 90000"),
  });
  expect(checks.get("trip")).toMatchObject({ status: "ok" });
  expect(checks.get("rights")).toMatchObject({ status: "warn", message: "/open: world:anyone:rwcda" });
  const ownDriver = await openDriver({ root: "/examined", auth: [ANA] });
  const rights = (await ownDriver.diagnose?.())?.find(({ name }) => name === "rights");
  expect(rights).toMatchObject({ status: "ok", message: "/examined: digest:ana:...:rwcda" });
});
