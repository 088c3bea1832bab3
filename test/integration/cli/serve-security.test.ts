import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { get } from "node:https";
import { connect as connectPlain } from "node:net";
import { join } from "node:path";
import { connect as connectTls } from "node:tls";
import { expect, test } from "vitest";
import { createCredential } from "../../../src/auth/accounts-file.ts";
import { connect } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { createAuthority, writeCertificate } from "../../support/certificates.ts";
import type { RunningCommand } from "../../support/cli-sandbox.ts";
import { cliSandbox, isProcessAlive, PROGRAM } from "../../support/cli-sandbox.ts";

const sandbox = cliSandbox();

/** A running server with TLS and one account for all keys. */
async function startSecuredServer(name: string, ...extraArgs: string[]) {
  const folder = join(sandbox.folder, name);
  mkdirSync(folder);
  const issuer = createAuthority();
  const files = writeCertificate(folder, issuer.issue(["127.0.0.1", "localhost"]), issuer);
  const accounts = join(folder, "accounts.json");
  const admit = (...hashes: string[]): void => {
    const rules = [{ prefix: "", rights: ["acquire", "inspect", "revoke", "admin"] }];
    const text = JSON.stringify({ version: 1, accounts: [{ name: "ops", hashes, rules }] });
    writeFileSync(accounts, text, { mode: 0o600 });
  };
  const { credential, hash } = createCredential();
  admit(hash);
  const tls = ["--listen", "holdfasts://127.0.0.1:0", "--tls-cert", files.cert, "--tls-key", files.key];
  const args = [...tls, "--credentials", accounts, "--state", join(folder, "state"), ...extraArgs];
  const server = sandbox.start(["serve", ...args]);
  await until(() => server.out().includes("\n") || !isProcessAlive(server.pid), { within: 20_000, what: "the server" });
  const url = (server.out().split("\n")[0] as string).replace("listening on ", "");
  const port = Number(url.split(":").at(-1));
  return {
    server,
    args,
    at: url,
    url: `${url}?ca=${files.ca}`,
    port,
    folder,
    issuer,
    files,
    accounts,
    admit,
    credential,
    hash,
  };
}

async function waitForLog(server: RunningCommand, text: string, times = 1): Promise<void> {
  const isLogged = (): boolean => server.err().split(text).length > times;
  await until(isLogged, { within: 10_000, what: `the server to say "${text}"` });
}

/** The serial number of the certificate that a new connection gets. */
function certificateSerial(port: number, ca: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connectTls({ host: "127.0.0.1", port, ca: readFileSync(ca) }, () => {
      resolve(socket.getPeerCertificate().serialNumber);
      socket.destroy();
    });
    socket.on("error", reject);
  });
}

async function stopServer(server: RunningCommand): Promise<void> {
  server.process.kill("SIGTERM");
  expect((await server.ended).code).toBe(0);
}

test.concurrent("SIGHUP: new connections get the new certificate, while the old ones stay", async () => {
  const { server, url, port, folder, issuer, files, credential } = await startSecuredServer("certificate");
  const locks = await connect(url, { credential });
  const lock = await locks.acquire("k");
  const events: string[] = [];
  locks.on("storeDown", () => events.push("storeDown"));
  const before = await certificateSerial(port, files.ca);
  writeCertificate(folder, issuer.issue(["127.0.0.1"]), issuer);
  expect(await certificateSerial(port, files.ca)).toBe(before);
  server.process.kill("SIGHUP");
  await waitForLog(server, "reloaded: certificate for");
  await waitForLog(server, "reloaded: credentials of 1 accounts");
  expect(await certificateSerial(port, files.ca)).not.toBe(before);
  expect((await locks.list("k"))[0]).toMatchObject({ state: "held", token: lock.token });
  expect(events).toEqual([]);
  await lock.release();
  await locks.close();
  await stopServer(server);
});

test.concurrent("SIGHUP with invalid files keeps the old ones, and logs the error", async () => {
  const { server, url, port, files, accounts, credential } = await startSecuredServer("bad");
  const before = await certificateSerial(port, files.ca);
  writeFileSync(files.cert, "no certificate");
  writeFileSync(accounts, "{");
  server.process.kill("SIGHUP");
  await waitForLog(server, "error: NOT reloaded; the previous certificates remain in use");
  await waitForLog(server, "error: NOT reloaded; the previous credentials remain in use");
  expect(await certificateSerial(port, files.ca)).toBe(before);
  const env = { HOLDFAST_CREDENTIAL: credential };
  expect((await sandbox.run(["run", "k", "--url", url, "--", "true"], { env })).code).toBe(0);
  const lateAuthority = createAuthority("late");
  writeCertificate(join(files.cert, ".."), lateAuthority.issue(["127.0.0.1"], { age: 3, days: 1 }), lateAuthority);
  server.process.kill("SIGHUP");
  await waitForLog(server, "error: NOT reloaded; the previous certificates remain in use", 2);
  await stopServer(server);
});

test.concurrent("SIGHUP: two credentials are valid during a replacement, and a removed one is refused", async () => {
  const { server, url, at, admit, credential, hash } = await startSecuredServer("rotation");
  const run = (secret: string) =>
    sandbox.run(["run", "k", "--url", url, "--", "true"], { env: { HOLDFAST_CREDENTIAL: secret } });
  const next = createCredential();
  expect((await run(next.credential)).code).toBe(77);
  admit(hash, next.hash);
  server.process.kill("SIGHUP");
  await waitForLog(server, "reloaded: credentials");
  expect([(await run(credential)).code, (await run(next.credential)).code]).toEqual([0, 0]);
  const old = await connect(url, { credential });
  admit(next.hash);
  server.process.kill("SIGHUP");
  await waitForLog(server, "reloaded: credentials", 2);
  const refusedRun = await run(credential);
  expect(refusedRun).toMatchObject({
    code: 77,
    err: `holdfast: ${at} refused: no valid credential was given; nothing was run\n`,
  });
  await expect(old.list()).rejects.toThrow("no valid credential was given");
  expect((await run(next.credential)).code).toBe(0);
  await old.close();
  expect(server.err() + server.out()).not.toContain(credential);
  await stopServer(server);
});

test.concurrent("a run whose credential was removed says what the server said when it ends the command", async () => {
  const { server, url, admit, credential } = await startSecuredServer("removed");
  const args = [
    "run",
    "k",
    "--url",
    url,
    "--ttl",
    "4s",
    "--grace",
    "1s",
    "--",
    "sh",
    "-c",
    "echo working; exec sleep 60",
  ];
  const run = sandbox.start(args, { env: { HOLDFAST_CREDENTIAL: credential } });
  await until(() => run.out().includes("working"), { within: 20_000, what: "the command" });
  admit(createCredential().hash);
  server.process.kill("SIGHUP");
  const { code, err } = await run.ended;
  expect(err).toMatch(/^holdfast: losing "k" \(not renewed for .*: .*no valid credential was given\): sent TERM to/m);
  expect(code).toBe(123);
  await stopServer(server);
});

test.concurrent("the credential can come from a file, which is read again for each connection", async () => {
  const { server, url, folder, credential } = await startSecuredServer("file");
  const file = join(folder, "credential");
  writeFileSync(file, `${credential}\n`, { mode: 0o600 });
  const run = (env: Record<string, string>) => sandbox.run(["run", "k", "--url", url, "--", "true"], { env });
  expect((await run({ HOLDFAST_CREDENTIAL_FILE: file })).code).toBe(0);
  const missing = await run({ HOLDFAST_CREDENTIAL_FILE: `${file}.none` });
  expect(missing).toMatchObject({ code: 77 });
  expect(missing.err).toContain(`HOLDFAST_CREDENTIAL_FILE names ${file}.none, which cannot be read (ENOENT)`);
  const ambiguousRun = await run({ HOLDFAST_CREDENTIAL_FILE: file, HOLDFAST_CREDENTIAL: credential });
  expect(ambiguousRun).toMatchObject({ code: 64 });
  expect(ambiguousRun.err).toContain("HOLDFAST_CREDENTIAL and HOLDFAST_CREDENTIAL_FILE are both set: unset one");
  expect((await run({})).code).toBe(77);
  const malformedRun = await run({ HOLDFAST_CREDENTIAL: "two words" });
  expect(malformedRun.code).toBe(64);
  expect(malformedRun.err).not.toContain("two words");
  await stopServer(server);
});

test.concurrent("one wrong credential too many is reported as such, by a command too, and a valid one is admitted", async () => {
  const { server, url, credential } = await startSecuredServer("many", "--limit", "failuresPerMinute=1");
  const run = (secret: string) =>
    sandbox.run(["run", "k", "--url", url, "--", "true"], { env: { HOLDFAST_CREDENTIAL: secret } });
  const wrongCredential = createCredential().credential;
  expect((await run(wrongCredential)).code).toBe(77);
  expect(await run(wrongCredential)).toMatchObject({
    code: 69,
    err: `holdfast: ${url} cannot be used: too many wrong credentials from this address: wait a minute; nothing was run\n`,
  });
  expect((await run(credential)).code).toBe(0);
  await stopServer(server);
});

test.concurrent("the child of a run has no credential: a nested run that cannot authenticate ends with 77", async () => {
  const { server, url, credential, folder } = await startSecuredServer("nested");
  const file = join(folder, "credential");
  writeFileSync(file, credential);
  const inner = [process.execPath, PROGRAM, "run", "inner", "--url", url, "--", "true"];
  for (const env of [{ HOLDFAST_CREDENTIAL: credential }, { HOLDFAST_CREDENTIAL_FILE: file }]) {
    const environment = await sandbox.run(["run", "outer", "--url", url, "--", "env"], { env });
    expect(environment.code).toBe(0);
    expect(environment.out).toContain("HOLDFAST_KEY=outer");
    expect(environment.out).not.toMatch(/CREDENTIAL|hf1_/);
    const nested = await sandbox.run(["run", "outer", "--url", url, "--", ...inner], { env });
    expect(nested.code).toBe(77);
    expect(nested.err).toContain("refused: no valid credential was given; nothing was run");
  }
  await stopServer(server);
});

test.concurrent("an issuer in NODE_EXTRA_CA_CERTS is trusted, by name and by address", async () => {
  const { server, at, files, credential } = await startSecuredServer("extra");
  const env = { HOLDFAST_CREDENTIAL: credential, NODE_EXTRA_CA_CERTS: files.ca };
  for (const url of [at, at.replace("127.0.0.1", "localhost")]) {
    expect(await sandbox.run(["run", "k", "--url", url, "--", "true"], { env })).toMatchObject({ code: 0, err: "" });
  }
  const unauthorizedRun = await sandbox.run(["run", "k", "--url", at, "--", "true"], {
    env: { HOLDFAST_CREDENTIAL: credential },
  });
  expect(unauthorizedRun.code).toBe(69);
  expect(unauthorizedRun.err).toContain(`the certificate of ${at} is signed by an unknown issuer`);
  await stopServer(server);
});

test.concurrent("--tls-client-ca demands a client certificate, and --check works while the server runs", async () => {
  const clients = createAuthority("clients");
  const folder = join(sandbox.folder, "clients");
  mkdirSync(folder);
  const ownCertificate = writeCertificate(folder, clients.issue(["worker"]), clients);
  const { server, at, url, credential, args } = await startSecuredServer(
    "mutual",
    "--tls-client-ca",
    ownCertificate.ca,
  );
  const run = (options: string) =>
    sandbox.run(["run", "k", "--url", `${url}${options}`, "--", "true"], { env: { HOLDFAST_CREDENTIAL: credential } });
  const plainRun = await run("");
  expect(plainRun.code).toBe(77);
  expect(plainRun.err).toContain(`${at} refused: this server requires a client certificate`);
  expect((await run(`&cert=${ownCertificate.cert}&key=${ownCertificate.key}`)).code).toBe(0);
  expect(await sandbox.run(["serve", "--check", ...args])).toMatchObject({ code: 0, out: "configuration is valid\n" });
  await stopServer(server);
});

test.concurrent("HTTP for other machines speaks TLS, also with a reloaded certificate", async () => {
  const { server, folder, issuer, files, credential } = await startSecuredServer("http", "--http", "0.0.0.0:0");
  const [, http] = server.out().trim().split("\n");
  expect(http).toMatch(/^HTTP on https:\/\/0\.0\.0\.0:\d+$/);
  const port = Number(http?.split(":").at(-1));
  const status = (headers: Record<string, string>): Promise<number | undefined> =>
    new Promise((resolve, reject) => {
      const ca = readFileSync(files.ca);
      get({ host: "127.0.0.1", servername: "", port, path: "/v1/locks", ca, headers, agent: false }, (answer) => {
        answer.resume();
        resolve(answer.statusCode);
      }).on("error", reject);
    });
  expect(await status({})).toBe(401);
  expect(await status({ authorization: `Bearer ${credential}` })).toBe(200);
  const before = await certificateSerial(port, files.ca);
  const asRenamed = { authorization: `Bearer ${credential}`, host: "renamed.example" };
  expect(await status(asRenamed)).toBe(403);
  writeCertificate(folder, issuer.issue(["127.0.0.1", "renamed.example"]), issuer);
  server.process.kill("SIGHUP");
  await waitForLog(server, "reloaded: certificate for");
  expect(await certificateSerial(port, files.ca)).not.toBe(before);
  // the names in the new certificate are valid host names
  expect(await status(asRenamed)).toBe(200);
  await stopServer(server);
});

test.concurrent("SIGTERM: holders and waiters are notified, nothing more is granted, and the next start restores the table", async () => {
  const { server, url, credential, folder, files, accounts, port } = await startSecuredServer("drain");
  const first = await connect(url, { credential });
  const second = await connect(url, { credential });
  const lock = await first.acquire("k");
  const waiting = second.acquire("k");
  const isWaiting = async (): Promise<boolean> => (await first.list("k")).length === 2;
  await until(isWaiting, { within: 5_000, what: "the second to wait" });
  server.process.kill("SIGTERM");
  const { code, err } = await server.ended;
  expect(code).toBe(0);
  expect(err).toContain("stopping: received SIGTERM");
  const tls = ["--listen", `holdfasts://127.0.0.1:${port}`, "--tls-cert", files.cert, "--tls-key", files.key];
  const next = sandbox.start(["serve", ...tls, "--credentials", accounts, "--state", join(folder, "state"), "--json"]);
  await until(() => next.out().includes("\n"), { within: 20_000, what: "the next start" });
  expect(JSON.parse(next.out())).toMatchObject({ recoveryRemainingMs: 0 });
  expect(lock.signal.aborted).toBe(false);
  const { token } = lock;
  expect(await lock.release()).toBe(true);
  const granted = await waiting;
  expect(granted.token).toBeGreaterThan(token);
  await granted.release();
  await Promise.all([first.close(), second.close()]);
  await stopServer(next);
});

test.concurrent("a second signal ends the server at once", async () => {
  const args = ["--listen", "holdfast://127.0.0.1:0", "--http", "127.0.0.1:0", "--state", "none", "--json"];
  const server = sandbox.start(["serve", ...args]);
  await until(() => server.out().includes("\n"), { within: 20_000, what: "the server" });
  const { http } = JSON.parse(server.out()) as { http: string };
  const { port, host } = new URL(http);
  // half a request, which it has read: it waits a second for the rest
  const socket = connectPlain(Number(port), "127.0.0.1", () => {
    const head = `POST /v1/claims HTTP/1.1\r\nHost: ${host}\r\nContent-Type: application/json\r\n`;
    socket.write(`${head}Content-Length: 9\r\nExpect: 100-continue\r\n\r\n{`);
  });
  socket.on("error", () => undefined);
  let answer = "";
  socket.setEncoding("utf8").on("data", (text: string) => {
    answer += text;
  });
  await until(() => answer.includes("100 Continue"), { within: 20_000, what: "half a request to be read" });
  // both signals are pending when it continues, in the kernel's order: the second must not come after the second is over
  for (const name of ["SIGSTOP", "SIGTERM", "SIGINT", "SIGCONT"] as const) server.process.kill(name);
  const { code, err } = await server.ended;
  expect([130, 143]).toContain(code);
  expect(err).toMatch(/stopping: received SIG(INT|TERM)$/m);
  socket.destroy();
});

test.concurrent("SIGHUP does not end a server that has nothing to reload", async () => {
  const server = sandbox.start(["serve", "--listen", "holdfast://127.0.0.1:0", "--state", "none"]);
  await until(() => server.out().includes("\n"), { within: 20_000, what: "the server" });
  server.process.kill("SIGHUP");
  await waitForLog(server, "received SIGHUP");
  expect(isProcessAlive(server.pid)).toBe(true);
  await stopServer(server);
});
