// Mutual TLS with a real server: the rights of a client certificate; a renewed certificate is used without a restart.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { OPEN_TO_ALL } from "../../../src/drivers/zookeeper/client/records.ts";
import { ZooKeeper } from "../../../src/drivers/zookeeper/client/zookeeper.ts";
import type { TlsOptions, ZooKeeperDriverOptions } from "../../../src/drivers/zookeeper/driver.ts";
import { zookeeper } from "../../../src/drivers/zookeeper/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { createAuthority } from "../../support/certificates.ts";
import type { ZooKeeperServer } from "../../support/stores/zookeeper.ts";
import { startZooKeeper } from "../../support/stores/zookeeper.ts";
import { setAcl } from "../../support/stores/zookeeper-requests.ts";

const TIMEOUT_MS = 20_000;
const SESSION_MS = 20_000;
const issuer = createAuthority();
const [ana, ben] = [issuer.issue(["ana"]), issuer.issue(["ben"])];
const folder = mkdtempSync(join(tmpdir(), "holdfast-zk-mutual-"));
let server: ZooKeeperServer;
let admin: ZooKeeper;
let anaFiles: ZooKeeper;
let benFiles: ZooKeeper;
const openResources: { close(): Promise<void> }[] = [];

beforeAll(async () => {
  const certificate = issuer.issue(["localhost", "127.0.0.1"]);
  server = await startZooKeeper({ secure: { certificate, users: {}, clientIssuer: issuer.cert } });
  admin = new ZooKeeper({ servers: [server.address] });
  const users = [ana, ben].map((certificate) => ({
    servers: [server.secureAddress],
    tls: { ca: issuer.cert, ...certificate },
  }));
  [anaFiles, benFiles] = users.map((options) => new ZooKeeper(options)) as [ZooKeeper, ZooKeeper];
  await Promise.all([admin, anaFiles, benFiles].map((zk) => zk.open()));
}, 60_000);

afterAll(async () => {
  await Promise.all([admin, anaFiles, benFiles].map((zk) => zk.close()));
  await server[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true });
});

afterEach(async () => {
  await Promise.all(openResources.splice(0).map((resource) => resource.close()));
});

function openLocks(tls: TlsOptions, options: Partial<ZooKeeperDriverOptions> = {}): Locks {
  const driver = zookeeper({ servers: [server.secureAddress], sessionMs: SESSION_MS, tls, ...options });
  const locks = createLocks(driver, { ttl: "session" });
  openResources.push(locks);
  return locks;
}

/** The owners of the node, as far as this client may read them; null: no right to read. */
async function nodeOwners(path: string, client: ZooKeeper): Promise<readonly string[] | null> {
  try {
    return (await client.getAcl(path)).map(({ scheme, id, perms }) => `${scheme}:${id}:${perms}`);
  } catch (error) {
    if ((error as { code?: unknown }).code !== "NO_AUTH") throw error;
    return null;
  }
}

test("servers identify clients by certificate: nodes belong to their client, and a client without one is refused", async () => {
  const locks = openLocks({ ca: issuer.cert, ...ana }, { root: "/known" });
  await locks.using("key", async (lock) => {
    expect(lock.token).toBeGreaterThan(0n);
    expect(await nodeOwners("/known/key", anaFiles)).toEqual(["x509:CN=ana:31"]);
    expect(await nodeOwners("/known/key", benFiles)).toBeNull();
  });
  await expect(openLocks({ ca: issuer.cert, ...ben }, { root: "/known" }).acquire("key")).rejects.toMatchObject({
    code: "LOCK_STORE_REFUSED",
    message: expect.stringMatching(/no permission to delete nodes in \/known\/key, .*: NO_AUTH$/),
  });
  const refused =
    /within 3000 ms: the server refused the TLS connection \([ a-z]+\): see whether the client's certificate is valid .*$/;
  for (const certificate of [{}, issuer.issue(["ana"], { age: 3, days: 2 })])
    await expect(
      openLocks({ ca: issuer.cert, ...certificate }, { connectTimeout: 3_000 }).acquire("key"),
    ).rejects.toMatchObject({ message: expect.stringMatching(refused) });
});

test("the files of a url are read for each connection; a half-finished renewal does no harm", async () => {
  await using proxy = await tcpProxy(server.secureAddress);
  const { port } = proxy.address as { port: number };
  const files = { ca: join(folder, "ca.pem"), cert: join(folder, "cert.pem"), key: join(folder, "key.pem") };
  const write = (certificates: Partial<Record<keyof typeof files, string>>): void => {
    for (const [name, text] of Object.entries(certificates)) writeFileSync(files[name as keyof typeof files], text);
  };
  write({ ca: issuer.cert, ...ana });
  await admin.create("/renewed", { acl: OPEN_TO_ALL });
  const query = new URLSearchParams({ ...files, root: "/renewed", sessionMs: `${SESSION_MS}` });
  const locks = await connect(`zookeepers://127.0.0.1:${port}?${query}`, { ttl: "session" });
  openResources.push(locks);
  const events: string[] = [];
  for (const event of ["jeopardy", "restored", "lost"] as const) locks.on(event, () => events.push(event));
  const held = await locks.acquire("held");
  const reconnect = async (times: number): Promise<void> => {
    proxy.reset();
    const isRestored = (): boolean => events.filter((event) => event === "restored").length === times;
    await until(isRestored, { within: TIMEOUT_MS, what: "another connection" });
  };
  /** The owner of nodes made now. */
  const owner = (key: string): Promise<readonly boolean[]> =>
    locks.using(key, () =>
      Promise.all([anaFiles, benFiles].map(async (zk) => (await nodeOwners(`/renewed/${key}`, zk)) !== null)),
    );
  const [ANAS, BENS] = [
    [true, false],
    [false, true],
  ];
  expect(await owner("first")).toEqual(ANAS);

  write({ cert: ben.cert });
  await reconnect(1);
  expect(await owner("half"), "a certificate without its key").toEqual(ANAS);

  write({ key: ben.key });
  await reconnect(2);
  expect(await owner("whole")).toEqual(BENS);

  rmSync(files.ca);
  await reconnect(3);
  expect(await owner("missing")).toEqual(BENS);
  expect(events).not.toContain("lost");
  held.throwIfLost();
  await setAcl(anaFiles, "/renewed/held", OPEN_TO_ALL);
  await held.release();
  await locks.close();
});

test("a custom function is called for each connection; its error fails that connection alone", async () => {
  await using proxy = await tcpProxy(server.secureAddress);
  const zk = new ZooKeeper({
    servers: [proxy.address as { host: string; port: number }],
    sessionMs: SESSION_MS,
    tls() {
      requestCount++;
      if (requestCount === 2) throw new Error("no certificate now");
      return { ca: issuer.cert, ...(requestCount > 1 ? ben : ana) };
    },
  });
  let requestCount = 0;
  openResources.push(zk);
  const sessions: string[] = [];
  await zk.open({
    onConnected: (isRenewed) => sessions.push(isRenewed ? "new" : "same"),
    onSuspended: () => sessions.push("lost"),
  });
  expect(await zk.whoAmI()).toContainEqual({ scheme: "x509", user: "CN=ana" });
  proxy.reset();
  await until(() => sessions.length === 3, { within: TIMEOUT_MS, what: "another connection" });
  expect(sessions, "of one session").toEqual(["new", "lost", "same"]);
  expect(requestCount).toBe(3);
  expect(await zk.whoAmI()).toContainEqual({ scheme: "x509", user: "CN=ben" });
});

test("a certificate that does not match the key is refused when the driver is created", () => {
  expect(() => zookeeper({ servers: [server.secureAddress], tls: { cert: ana.cert, key: ben.key } })).toThrow(
    /^tls cannot be used: /,
  );
});
