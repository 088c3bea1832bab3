/** Messages for a Redis that cannot be used: what is wrong, where, and the remedy; no secret and no digest. */

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { createServer, connect as dial } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { RedisClient } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { connect, createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { freePort } from "../../../src/torture/processes/free-port.ts";
import { createAuthority, writeCertificate } from "../../support/certificates.ts";
import { cliSandbox } from "../../support/cli-sandbox.ts";
import type { RedisServer } from "../../support/stores/redis.ts";
import { startRedis, tlsArguments } from "../../support/stores/redis.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import { LEAST_PERMISSIONS } from "../../support/stores/redis-permissions.ts";

const sandbox = cliSandbox();

const PASSWORD = "hushhush";
const NO_WARNINGS = { warn: () => undefined };
const PASSWORD_DIGEST = /[0-9a-f]{40}/;
const folder = mkdtempSync(join(tmpdir(), "holdfast-troubles-"));
const cleanups: (() => unknown)[] = [];
afterAll(async () => {
  for (const cleanup of cleanups) await cleanup();
  rmSync(folder, { recursive: true, force: true });
});

const startServer = async (...settings: string[]): Promise<RedisServer> => {
  const server = await startRedis(settings);
  cleanups.push(() => server.stop());
  return server;
};
const withAdmin = async <T>(port: number, operation: (admin: Redis) => Promise<T>): Promise<T> => {
  const admin = new Redis(port, "127.0.0.1");
  try {
    return await operation(admin);
  } finally {
    admin.disconnect();
  }
};

/** "CODE: message" of the first error when a lock is taken; "" if it is granted. */
async function connectionError(createRedis: () => Locks | Promise<Locks>): Promise<string> {
  let locks: Locks | undefined;
  try {
    locks = await createRedis();
    const lock = await locks.tryAcquire("key");
    await lock?.release();
    return "";
  } catch (error) {
    const { code, message } = error as Error & { code: string };
    const errors = [error, (error as Error).cause].map((one) =>
      JSON.stringify(one, Object.getOwnPropertyNames(one ?? {})),
    );
    expect(errors.join()).not.toContain(PASSWORD);
    expect(message).not.toMatch(PASSWORD_DIGEST);
    expect(message).not.toContain("\n");
    return `${code}: ${message}`;
  } finally {
    await locks?.close();
  }
}
const errorByUrl = (url: string, connectTimeout = 5_000): Promise<string> =>
  connectionError(() => connect(url, { connectTimeout }));
const errorByNodeRedis = (url: string, connectTimeoutMs = 5_000): Promise<string> =>
  connectionError(() =>
    createLocks(redis(() => createClient({ url }), { ...NO_WARNINGS, connectTimeout: connectTimeoutMs })),
  );
/** By url, and by a client of node-redis: the same. */
async function errorsByBothClients(url: string, connectTimeout?: number): Promise<string> {
  const message = await errorByUrl(url, connectTimeout);
  expect(await errorByNodeRedis(url, connectTimeout)).toBe(message);
  return message;
}

withRedis((server) => {
  const fatal = (port: number, text: string): string => `LOCK_STORE_REFUSED: redis 127.0.0.1:${port}: ${text}`;

  describe("a refused login is explained", () => {
    const refusedLogin = (code: string): string =>
      `the server refuses the login (${code}): set user and password, in a URL redis://user:password@host, and check ACL LIST on the server`;

    test("no password, or a wrong one", async () => {
      const { port, url } = await startServer("--requirepass", "right");
      expect(await errorsByBothClients(url)).toBe(fatal(port, refusedLogin("NOAUTH")));
      for (const login of [`:${PASSWORD}@`, `nobody:${PASSWORD}@`]) {
        expect(await errorsByBothClients(url.replace("//", `//${login}`))).toBe(fatal(port, refusedLogin("WRONGPASS")));
      }
    });

    test.each([
      ["subscribe", "this user has no right to SUBSCRIBE (NOPERM): grant +subscribe"],
      ["evalsha", "this user has no right to EVALSHA (NOPERM): grant +evalsha"],
      ["eval", "this user has no right to EVAL (NOPERM): grant +eval"],
      ["publish", "this user has no right to PUBLISH (NOPERM): grant +publish"],
      ["zadd", "this user has no right to ZADD (NOPERM): grant +zadd"],
      ["~holdfast:*", "this user may not access Holdfast's keys (NOPERM): grant ~PREFIX:*, by default ~holdfast:*"],
      ["&holdfast:*", "this user may not access Holdfast's channels (NOPERM): grant &PREFIX:*, by default &holdfast:*"],
    ])("a user without %s", async (missingPermission, message) => {
      const { port } = server();
      const allRules = ["~holdfast:*", "&holdfast:*", ...LEAST_PERMISSIONS];
      const rules = allRules.filter((rule) => rule !== missingPermission && rule !== `+${missingPermission}`);
      expect(rules.length).toBe(allRules.length - 1);
      await withAdmin(port, (admin) => admin.call("ACL", "SETUSER", "app", "reset", "on", `>${PASSWORD}`, ...rules));
      expect(await errorsByBothClients(`redis://app:${PASSWORD}@127.0.0.1:${port}`)).toBe(fatal(port, message));
    });

    test("protected mode", async () => {
      const address = Object.values(networkInterfaces())
        .flat()
        .find((networkAddress) => networkAddress?.family === "IPv4" && !networkAddress.internal)?.address;
      if (address === undefined) return;
      const { port } = await startServer("--bind", "127.0.0.1", address, "--protected-mode", "yes");
      expect(await errorByNodeRedis(`redis://${address}:${port}`, 1_000)).toMatch(
        /DENIED Redis is running in protected/,
      );
      // ioredis may find the connection closed before it has read why
      expect(await errorByUrl(`redis://${address}:${port}`, 1_000)).toMatch(/protected mode/);
    });
  });

  describe("a server without a command that is needed", () => {
    const hiding = (command: string): Promise<RedisServer> => startServer("--rename-command", command, `X${command}`);

    test.concurrent.each(["EVAL", "EVALSHA", "SELECT", "SUBSCRIBE", "WAIT", "ZADD", "PUBLISH"])(
      "%s",
      async (command) => {
        const { port, url } = await hiding(command);
        const explanation = `the server does not have ${command} (unknown command): it is older than Redis 6.2, or hides the command (rename-command): allow it, or use another server`;
        const byUrl = await errorByUrl(
          `${url}/${command === "SELECT" ? 3 : 0}${command === "WAIT" ? "?replicas=1" : ""}`,
        );
        expect(byUrl).toBe(fatal(port, explanation));
        const options = { ...NO_WARNINGS, ...(command === "WAIT" && { replicas: { minAcks: 1 } }) };
        const createRedis = (): RedisClient => createClient({ url, ...(command === "SELECT" && { database: 3 }) });
        expect(await connectionError(() => createLocks(redis(createRedis, options)))).toBe(fatal(port, explanation));
      },
    );

    test("SCRIPT is not needed, as the right to it is not", async () => {
      const { url } = await hiding("SCRIPT");
      expect(await errorsByBothClients(url)).toBe("");
    });
  });

  test("a server that stops answering while a client opens is given up when the time to connect is over", async () => {
    let isSilent = false;
    const proxy = createServer((client) => {
      const connection = dial(server().port, "127.0.0.1");
      for (const socket of [client, connection]) {
        socket.on("error", () => undefined).on("close", () => [client, connection].map((one) => one.destroy()));
      }
      connection.pipe(client);
      client.on("data", (bytes) => {
        isSilent ||= bytes.includes("LOAD");
        if (!isSilent) connection.write(bytes);
      });
    });
    await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
    cleanups.push(() => proxy.close());
    const { port } = proxy.address() as { port: number };
    const startedAt = performance.now();
    expect(await errorsByBothClients(`redis://127.0.0.1:${port}`, 1_000)).toBe(
      `LOCK_STORE_FAILED: could not open redis: redis 127.0.0.1:${port}: not reached within 1000 ms, no answer: is the server loading its data, or blocked by a firewall?`,
    );
    expect(isSilent).toBe(true);
    // a single command would have 5 s
    expect(performance.now() - startedAt).toBeLessThan(5_000);
  });

  describe("a url of another kind than the server", () => {
    const otherKind = (reason: string): string =>
      `the server is of another kind (${reason}): use a URL redis:// for a single server, redis+cluster:// for a Cluster, redis+sentinel:// for Sentinels, or a client for that kind`;

    test("a Cluster's or Sentinels' for a single server", async () => {
      const { port } = server();
      expect(await errorByUrl(`redis+cluster://127.0.0.1:${port}`)).toBe(
        fatal(port, otherKind("cluster support disabled")),
      );
      expect(await errorByUrl(`redis+sentinel://127.0.0.1:${port}/mine`)).toBe(
        `LOCK_STORE_REFUSED: redis mine through Sentinels at 127.0.0.1:${port}: ${otherKind("unknown command 'sentinel")}`,
      );
    });

    test("a replica's for the master's", async () => {
      const replica = await startServer("--replicaof", "127.0.0.1", String(server().port));
      const explain = (word: string): string =>
        `this is a replica (${word}): connect to the master, or through Sentinels with a URL redis+sentinel://host,host/master`;
      expect(await errorsByBothClients(replica.url)).toBe(fatal(replica.port, explain("READONLY")));
      const orphanReplica = await startServer("--replicaof", "127.0.0.1", "1", "--replica-serve-stale-data", "no");
      expect(await errorsByBothClients(orphanReplica.url)).toBe(fatal(orphanReplica.port, explain("MASTERDOWN")));
    });

    test("a port of a program other than Redis", async () => {
      const web = createServer((socket) => {
        socket.on("error", () => undefined).once("data", () => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
      });
      await new Promise<void>((resolve) => web.listen(0, "127.0.0.1", resolve));
      cleanups.push(() => web.close());
      const { port } = web.address() as { port: number };
      expect(await errorsByBothClients(`redis://127.0.0.1:${port}`)).toBe(
        `LOCK_STORE_FAILED: could not open redis: redis 127.0.0.1:${port}: this is not a Redis server: check host and port; the URL of a Holdfast server begins with holdfast://`,
      );
    });
  });

  describe("TLS", () => {
    let secured: RedisServer;
    let strict: RedisServer;
    let [port, strictPort] = [0, 0];
    let ca = "";
    beforeAll(async () => {
      const issuer = createAuthority();
      const files = writeCertificate(folder, issuer.issue(["localhost"]), issuer);
      ca = files.ca;
      [port, strictPort] = [await freePort(), await freePort()];
      secured = await startServer(...tlsArguments(port, files));
      strict = await startServer(...tlsArguments(strictPort, files), "--tls-auth-clients", "yes");
    }, 60_000);

    const CLOSED =
      "the connection was closed before an answer: does Redis listen on this port without TLS (else use rediss://), with protected mode off?";

    test("missing at a TLS port, and the other way round", async () => {
      const silentMessage =
        "not reached within 500 ms, no answer: does Redis use TLS on this port (else use redis://)?";
      const message = `LOCK_STORE_FAILED: could not open redis: redis 127.0.0.1:${secured.port}: `;
      const other = `LOCK_STORE_FAILED: could not open redis: redis 127.0.0.1:${port}: ${CLOSED}`;
      // each ends when its time to connect is over
      const errors = await Promise.all([
        errorByUrl(`rediss://127.0.0.1:${secured.port}`, 500),
        errorByNodeRedis(`rediss://127.0.0.1:${secured.port}`, 500),
        errorByUrl(`rediss+cluster://127.0.0.1:${secured.port}`, 1_000),
        errorByUrl(`redis://127.0.0.1:${port}`, 1_000),
        // it tries again until then, and must have been refused once
        errorByNodeRedis(`redis://127.0.0.1:${port}`, 1_500),
        errorByUrl(`redis+cluster://127.0.0.1:${port}`, 1_000),
      ]);
      expect(errors).toEqual([
        message + silentMessage,
        message + silentMessage,
        expect.stringMatching(/does Redis use TLS on this port/),
        other,
        other,
        other,
      ]);
    });

    test("with an unknown certificate, or one for another name", async () => {
      expect(await errorsByBothClients(`rediss://127.0.0.1:${port}`)).toMatch(
        /^LOCK_STORE_REFUSED: redis 127\.0\.0\.1:\d+: TLS failed \([\w -]*certificate\): set \?ca=FILE and \?servername=NAME in the URL/,
      );
      expect(await errorByUrl(`rediss://127.0.0.1:${port}?ca=${ca}`)).toBe(
        fatal(
          port,
          "TLS failed (does not match certificate's altnames): set ?ca=FILE and ?servername=NAME in the URL, pass your own client with a client certificate, or use redis:// for a port without TLS",
        ),
      );
      expect(await errorByUrl(`rediss://127.0.0.1:${port}?ca=${ca}&servername=localhost`)).toBe("");
    });

    test("with a missing client certificate; and a missing file", async () => {
      expect(await errorByUrl(`rediss://127.0.0.1:${strictPort}?ca=${ca}&servername=localhost`)).toMatch(
        /TLS failed \(alert .*pass your own client with a client certificate|closed before an answer/,
      );
      expect(await errorByUrl(`rediss://127.0.0.1:${port}?ca=${ca}.none`)).toBe(
        `LOCK_STORE_REFUSED: url: ca names ${ca}.none, which cannot be read (ENOENT)`,
      );
      expect(strict.port).not.toBe(secured.port);
    });
  });

  describe("a server that refuses new locks", () => {
    const transientMessage = (text: string): string => `LOCK_STORE_FAILED: could not acquire "key": redis: ${text}`;
    const openMessage = (port: number, text: string): string =>
      `LOCK_STORE_FAILED: could not open redis: redis 127.0.0.1:${port}: ${text}`;
    const refusedWrite = (port: number, code: string): RegExp =>
      new RegExp(`^${openMessage(port, "the server refused a required command")}: \\w+: ${code} [^\\n]+$`);

    test("because its memory is full", async () => {
      const { port, url } = await startServer();
      await withAdmin(port, (admin) => admin.config("SET", "maxmemory", "1"));
      expect(await errorsByBothClients(url)).toBe(
        transientMessage(
          "the server's memory is full (OOM): new locks are refused, held locks continue; raise maxmemory, or use a separate server for locks",
        ),
      );
    });

    test("because its disk is full", async () => {
      const ownFolder = mkdtempSync(join(folder, "disk-"));
      const { port, url } = await startServer("--dir", ownFolder, "--save", "3600 1");
      await withAdmin(port, async (admin) => {
        await admin.set("key", "value");
        mkdirSync(join(ownFolder, "dump.rdb"));
        await admin.bgsave();
        await until(async () => /rdb_last_bgsave_status:err/.test(await admin.info("persistence")), {
          within: 10_000,
          what: "a save that fails",
        });
      });
      expect(await errorsByBothClients(url)).toMatch(refusedWrite(port, "MISCONF"));
    });

    test("because replicas are missing", async () => {
      const { port, url } = await startServer("--min-replicas-to-write", "1");
      expect(await errorsByBothClients(url)).toMatch(refusedWrite(port, "NOREPLICAS"));
    });

    test("while it loads its data", { timeout: 30_000 }, async () => {
      const ownFolder = mkdtempSync(join(folder, "load-"));
      const first = await startRedis(["--dir", ownFolder]);
      await withAdmin(first.port, async (admin) => {
        for (let index = 0; index < 1_500; index++) await admin.set(`key ${index}`, "value".repeat(500));
        await admin.save();
      });
      await first.stop();
      // 20 ms a key: half a minute, in which it answers every command
      const slowLoading = ["--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024"];
      const { url, port } = await startServer("--dir", ownFolder, ...slowLoading);
      expect(await errorByNodeRedis(url, 1_000)).toBe(
        openMessage(port, "the server is still loading its data (LOADING): try again later"),
      );
      // ioredis waits for it without an error
      expect(await errorByUrl(url, 500)).toBe(
        openMessage(
          port,
          "not reached within 500 ms, no answer: is the server loading its data, or blocked by a firewall?",
        ),
      );
    });
  });

  test("the command line prints the same in one line, and doctor suggests a remedy", async () => {
    const { port, url } = await startServer();
    await withAdmin(port, (admin) => admin.config("SET", "maxmemory", "1"));
    const run = await sandbox.run(["run", "key", "--wait", "1s", "--url", url, "--", "true"]);
    expect(run.err).toMatch(
      /^holdfast: redis:.* cannot be used: redis: the server's memory is full \(OOM\): [^\n]+\n$/m,
    );
    expect(run.code).toBe(69);
    const doctor = await sandbox.run(["doctor", "--url", url]);
    expect(doctor.out).toMatch(/FAIL +memory +memory is full: no new lock is granted\n +raise maxmemory/);
    expect(doctor.out + doctor.err).not.toMatch(PASSWORD_DIGEST);
    expect(doctor.code).toBe(69);
  });
});
