/** A lock server that is not up yet is tried until `connectTimeout` is over, whatever the form of its url. */

import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { connect } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { freePort } from "../../../src/torture/processes/free-port.ts";
import type { Address } from "../../../src/torture/tcp-proxy.ts";
import { createAuthority, writeCertificate } from "../../support/certificates.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { Relay } from "../../support/relay.ts";
import { cleanUpAfterEach, createTemporaryDirectory, onCleanup, startServer } from "../../support/server-fixture.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

/** A server that can be started later. */
type LateServer = { readonly address: Address; readonly url: string; start(): Promise<void> };

async function prepare(kind: string): Promise<LateServer> {
  const dir = createTemporaryDirectory();
  const startOn = async (listen: string, tls?: { readonly cert: string; readonly key: string }): Promise<void> => {
    await startServer({ in: dir, listen, ...(tls !== undefined && { tls }) });
  };
  if (kind === "unix") {
    const path = join(dir, "late");
    return { address: { path }, url: `holdfast+unix:${path}`, start: () => startOn(`holdfast+unix:${path}`) };
  }
  const port = await freePort();
  const address = { host: "127.0.0.1", port };
  if (kind === "tcp") {
    return { address, url: `holdfast://127.0.0.1:${port}`, start: () => startOn(`holdfast://127.0.0.1:${port}`) };
  }
  const issuer = createAuthority();
  const { cert, key, ca } = writeCertificate(dir, issuer.issue(["127.0.0.1"]), issuer);
  const url = `holdfasts://127.0.0.1:${port}?ca=${ca}`;
  return { address, url, start: () => startOn(`holdfasts://127.0.0.1:${port}`, { cert, key }) };
}

describe.each(["unix", "tcp", "tls"])("%s", (kind) => {
  test("connect() reaches a server that starts within connectTimeout", async () => {
    const server = await prepare(kind);
    const opening = connect(server.url, { connectTimeout: "20s" });
    let isSettled = false;
    opening.then(
      () => {
        isSettled = true;
      },
      () => {
        isSettled = true;
      },
    );
    await delay(500);
    expect(isSettled).toBe(false);
    await server.start();
    const locks = await opening;
    onCleanup(() => locks.close());
    expect(await locks.tryAcquire("k")).not.toBeNull();
  });

  test("connect() reaches a server behind a relay that accepts and closes until then", async () => {
    const server = await prepare(kind);
    await server.start();
    const front =
      "path" in server.address
        ? { path: `${server.address.path}-relay` }
        : { ...server.address, port: await freePort() };
    const relay = await Relay.listen(front);
    onCleanup(() => relay.close());
    const url =
      "path" in front ? `holdfast+unix:${front.path}` : server.url.replace(/(127\.0\.0\.1):\d+/, `$1:${front.port}`);
    const opening = connect(url, { connectTimeout: "20s" });
    await until(() => relay.endedConnections > 1, { within: 10_000, what: "a second attempt" });
    relay.forwardTo(server.address);
    const locks = await opening;
    onCleanup(() => locks.close());
    expect(await locks.tryAcquire("k")).not.toBeNull();
  });

  test("when connectTimeout is over, connect() rejects with the cause of the last attempt", async () => {
    const { address, url } = await prepare(kind);
    const startedAt = performance.now();
    await expect(connect(url, { connectTimeout: "1s" })).rejects.toMatchObject({
      code: "LOCK_STORE_FAILED",
      message: expect.stringMatching(kind === "unix" ? /does not exist/ : /refused the connection/),
    });
    const tookMs = performance.now() - startedAt;
    expect(tookMs).toBeGreaterThan(990);
    expect(tookMs).toBeLessThan(3_000);
    const relay = await Relay.listen(address);
    onCleanup(() => relay.close());
    await expect(connect(url, { connectTimeout: "1s" })).rejects.toMatchObject({
      code: "LOCK_STORE_FAILED",
      message: expect.stringMatching(/closed the connection/),
    });
    expect(relay.endedConnections).toBeGreaterThan(1);
  });
});
