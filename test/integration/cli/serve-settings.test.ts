import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { createCredential } from "../../../src/auth/accounts-file.ts";
import { createServeOptions } from "../../../src/cli/commands/serve/settings.ts";
import { DEFAULT_LIMITS, limitRange } from "../../../src/server/limits.ts";
import { until } from "../../../src/testing/until.ts";
import { createAuthority, writeCertificate } from "../../support/certificates.ts";
import type { RunningCommand } from "../../support/cli-sandbox.ts";
import { cliSandbox, PROGRAM } from "../../support/cli-sandbox.ts";

const sandbox = cliSandbox();

/** The directory of one test with a certificate, an accounts file and a credential for "team-a/". */
function writeSecrets(name: string) {
  const folder = join(sandbox.folder, name);
  mkdirSync(folder);
  const issuer = createAuthority();
  const tls = writeCertificate(folder, issuer.issue(["127.0.0.1"]), issuer);
  const { credential, hash } = createCredential();
  const accounts = join(folder, "accounts.json");
  const account = { name: "team-a", hashes: [hash], rules: [{ prefix: "team-a/", rights: ["acquire", "inspect"] }] };
  writeFileSync(accounts, JSON.stringify({ version: 1, accounts: [account] }), { mode: 0o600 });
  return { folder, issuer, ...tls, credential, accounts, state: join(folder, "state") };
}

async function waitUntilReady(server: RunningCommand): Promise<readonly string[]> {
  const exit = server.ended.then(({ err }) => Promise.reject(new Error(`the server ended: ${err}`)));
  const ready = until(() => server.out().includes("\n"), { within: 20_000, what: "the server" });
  await Promise.race([ready, exit]);
  exit.catch(() => undefined);
  return server.out().trim().split("\n");
}

async function stopServer(server: RunningCommand): Promise<string> {
  server.process.kill("SIGTERM");
  const { code, err } = await server.ended;
  expect({ code, err }).toMatchObject({ code: 0 });
  return err;
}

test.concurrent("a flag wins over the environment, and the environment over the file", async () => {
  const config = join(sandbox.folder, "precedence.json");
  writeFileSync(
    config,
    JSON.stringify({ listen: ["holdfast://127.0.0.1:0", "holdfast://127.0.0.1:0"], state: "none", idle: "1h" }),
  );
  const runCheck = (args: string[], env: Record<string, string>) =>
    sandbox.start(["serve", ...args], { env: { HOLDFAST_CONFIG: config, ...env } });
  const fromFile = runCheck([], {});
  expect(await waitUntilReady(fromFile)).toHaveLength(2);
  const socket = `holdfast+unix:${join(sandbox.folder, "env")}`;
  const fromEnvironment = runCheck([], {
    HOLDFAST_LISTEN: `${socket}, holdfast://127.0.0.1:0, holdfast://127.0.0.1:0`,
  });
  expect((await waitUntilReady(fromEnvironment))[0]).toBe(`listening on ${socket}`);
  expect(await waitUntilReady(fromEnvironment)).toHaveLength(3);
  const fromFlag = runCheck(["--listen", "holdfast://127.0.0.1:0"], { HOLDFAST_LISTEN: socket });
  expect(await waitUntilReady(fromFlag)).toHaveLength(1);
  for (const server of [fromFile, fromEnvironment, fromFlag]) await stopServer(server);
});

test.concurrent("all errors are reported at once, each with its origin", async () => {
  const config = join(sandbox.folder, "wrong.json");
  writeFileSync(
    config,
    JSON.stringify({ "tls-crt": "x", http: 7421, "tls-key": "/none/key.pem", insecure: "yes", limit: { keys: 1 } }),
  );
  const { code, err, out } = await sandbox.run(
    [
      "serve",
      "--config",
      config,
      "--listen",
      "holdfast://0.0.0.0:7420",
      "--idle",
      "soon",
      "--limit",
      "connections=many",
    ],
    {
      env: {
        HOLDFAST_TLS_CERT: "/none/cert.pem",
        HOLDFAST_CREDENTIALS: "/none/accounts.json",
        HOLDFAST_LOG_LEVEL: "loud",
      },
    },
  );
  expect({ code, out }).toEqual({ code: 78, out: "" });
  for (const line of [
    `holdfast: "tls-crt" in ${config}: unknown setting`,
    `holdfast: "http" in ${config}: must be a string`,
    `holdfast: "insecure" in ${config}: must be true or false`,
    "holdfast: --listen: holdfast://0.0.0.0:7420 is reachable from other machines and does not use TLS: listen on holdfasts://0.0.0.0:7420, with a certificate and credentials, or set insecure",
    "holdfast: HOLDFAST_TLS_CERT: the certificate /none/cert.pem cannot be read (ENOENT)",
    "holdfast: HOLDFAST_CREDENTIALS: /none/accounts.json cannot be read (ENOENT)",
    "holdfast: HOLDFAST_LOG_LEVEL: must be one of debug, info, warn, error, none, not",
    `holdfast: --limit or "limit" in ${config}: "connections=many" is not of the form NAME=INTEGER`,
    `holdfast: --limit or "limit" in ${config}: limits.keys is not a limit`,
  ]) {
    expect(err).toContain(line);
  }
  expect(err).toMatch(/holdfast: --idle: the value must be a duration.*not "soon"/);
  expect(err).not.toContain("--state");
});

test.concurrent("a wrong address is reported with the reason and the probable intention", async () => {
  const { code, err } = await sandbox.run([
    ...["serve", "--check", "--state", "none", "--http", "localhost:7421:1", "--limit", "foo=3"],
    ...[
      "holdfast://127.0.0.1:99999",
      "holdfast://127.0.0.1:80a",
      "holdfasts://[::1]",
      "holdfast://[::1]:",
      "127.0.0.1:7420",
      "/run/x",
      "x",
    ].flatMap((address) => ["--listen", address]),
  ]);
  expect(code).toBe(64);
  expect(err.trimEnd().split("\n")).toEqual([
    'holdfast: --listen: the port of "holdfast://127.0.0.1:99999" must be a number from 0 to 65535, not "99999"',
    'holdfast: --listen: the port of "holdfast://127.0.0.1:80a" must be a number from 0 to 65535, not "80a"',
    'holdfast: --listen: "holdfasts://[::1]" has no port: use holdfasts://[::1]:7420',
    'holdfast: --listen: "holdfast://[::1]:" has no port: use holdfast://[::1]:7420',
    'holdfast: --listen: "127.0.0.1:7420" is not holdfast+unix:/path, holdfast://host:port or holdfasts://host:port; did you mean holdfast://127.0.0.1:7420?',
    'holdfast: --listen: "/run/x" is not holdfast+unix:/path, holdfast://host:port or holdfasts://host:port; did you mean holdfast+unix:/run/x?',
    'holdfast: --listen: "x" is not holdfast+unix:/path, holdfast://host:port or holdfasts://host:port',
    expect.stringMatching(/^holdfast: --http: the port of "localhost:7421:1" must be/),
    expect.stringMatching(
      /^holdfast: --limit: limits.foo is not a limit; the limits are connections, .*, waitersPerKey$/,
    ),
  ]);
});

test.concurrent("for an invalid or ambiguous JSON file only the position is reported: the text could contain a store's password", async () => {
  const config = join(sandbox.folder, "torn.json");
  for (const [text, told] of [
    ['{"store":redis://:s3cret@host}', `--config: ${config} is not valid JSON at character 10`],
    ['{"limit": {"claims": 1}, "limit": {"claims": 2}}', `"limit" in ${config}: appears twice`],
    ["", `--config: ${config} is not valid JSON at character 1`],
  ] as const) {
    writeFileSync(config, text);
    const { code, err } = await sandbox.run(["serve", "--config", config, "--check"]);
    expect(err).toBe(`holdfast: ${told}\n`);
    expect([64, 78]).toContain(code);
  }
});

test.concurrent("with --json the same report is one object, its message without the usual prefix", async () => {
  const { err } = await sandbox.run(["serve", "--json", "--listen", "holdfast://h:70000", "--limit", "keys=1"]);
  const { message, errors } = JSON.parse(err) as { message: string; errors: { where: string; message: string }[] };
  expect(errors.map(({ where }) => where)).toEqual(["--listen", "--limit"]);
  expect(message).toBe(errors.map((error) => `${error.where}: ${error.message}`).join("\n"));
});

test.concurrent.each([
  ["holdfast://0.0.0.0:0", "does not use TLS and requires no credentials"],
  ["holdfast://[::]:0", "does not use TLS and requires no credentials"],
  ["holdfast://example.test:0", "does not use TLS and requires no credentials"],
])("%s is refused without TLS and credentials", async (listen, reason) => {
  const { code, err } = await sandbox.run(["serve", "--listen", listen, "--state", "none"]);
  expect(code).toBe(64);
  expect(err).toContain(`${listen} is reachable from other machines and ${reason}`);
});

test.concurrent("holdfasts:// for other machines needs credentials, HTTP needs both; --insecure listens with a warning", async () => {
  const { cert, key, accounts } = writeSecrets("exposed");
  const tls = ["--tls-cert", cert, "--tls-key", key, "--state", "none"];
  const unsecuredRun = await sandbox.run(["serve", "--listen", "holdfasts://0.0.0.0:0", ...tls]);
  expect(unsecuredRun).toMatchObject({ code: 64 });
  expect(unsecuredRun.err).toContain(
    "holdfasts://0.0.0.0:0 is reachable from other machines and requires no credentials: configure credentials",
  );
  const http = await sandbox.run([
    "serve",
    "--listen",
    "holdfast://127.0.0.1:0",
    "--state",
    "none",
    "--http",
    "0.0.0.0:0",
  ]);
  expect(http.err).toContain(
    "--http: 0.0.0.0:0 is reachable from other machines and does not use TLS and requires no credentials",
  );
  const guarded = sandbox.start(["serve", "--listen", "holdfasts://0.0.0.0:0", ...tls, "--credentials", accounts]);
  expect((await waitUntilReady(guarded))[0]).toMatch(/^listening on holdfasts:\/\/0\.0\.0\.0:\d+$/);
  expect(await stopServer(guarded)).not.toContain("INSECURE");
  const open = sandbox.start(["serve", "--listen", "holdfast://0.0.0.0:0", "--state", "none", "--insecure"]);
  await waitUntilReady(open);
  expect(await stopServer(open)).toContain(
    "holdfast: warning: INSECURE: holdfast://0.0.0.0:0 is reachable from other machines",
  );
});

test.concurrent("--check reports that the configuration is valid, and starts nothing", async () => {
  const { cert, key, accounts, state } = writeSecrets("well");
  const args = [
    "--listen",
    "holdfasts://0.0.0.0:7420",
    "--tls-cert",
    cert,
    "--tls-key",
    key,
    "--credentials",
    accounts,
  ];
  const { code, out, err } = await sandbox.run(["serve", "--check", ...args, "--state", state]);
  expect({ code, out, err }).toEqual({ code: 0, out: "configuration is valid\n", err: "" });
  const env = { HOLDFAST_DIR: join(sandbox.folder, "made", "later") };
  expect(await sandbox.run(["serve", "--check"], { env })).toMatchObject({ code: 0, err: "" });
});

test.concurrent("--check reports invalid certificates, credentials and state directories", async () => {
  const { folder, issuer, cert, key, accounts, state } = writeSecrets("unwell");
  const check = async (...args: string[]) => {
    const { code, err } = await sandbox.run(["serve", "--check", "--listen", "holdfasts://127.0.0.1:0", ...args]);
    return { code, err };
  };
  const tls = ["--tls-cert", cert, "--tls-key", key];
  const otherCertificateFiles = writeCertificate(sandbox.folder, createAuthority().issue(["x"]), issuer);
  const mismatch = await check("--tls-cert", cert, "--tls-key", otherCertificateFiles.key, "--state", "none");
  expect(mismatch.code).toBe(78);
  expect(mismatch.err).toContain(`the key ${otherCertificateFiles.key} does not belong to the certificate ${cert}`);
  const noKey = await check("--tls-cert", cert, "--state", "none");
  expect(noKey.err).toContain("the key of the certificate is missing: both are needed");
  const expiredCertificate = writeCertificate(sandbox.folder, issuer.issue(["x"], { age: 3, days: 1 }), issuer);
  const expiredCheck = await check(
    "--tls-cert",
    expiredCertificate.cert,
    "--tls-key",
    expiredCertificate.key,
    "--state",
    "none",
  );
  expect(expiredCheck.code).toBe(78);
  expect(expiredCheck.err).toMatch(/has expired on .*: clients refuse it/);
  const text = join(folder, "text");
  writeFileSync(text, '{"version": 1, "accounts": [{"name": "?"}]}', { mode: 0o600 });
  const garbled = await check(...tls, "--credentials", text, "--state", "none");
  expect(garbled.code).toBe(78);
  expect(garbled.err).toContain("accounts[0].name must be");
  expect(garbled.err).toContain("accounts[0].hashes must be");
  const noCert = await check("--tls-cert", text, "--tls-key", key, "--state", "none");
  expect(noCert.err).toContain(`${text} contains no PEM certificate`);
  const noPem = await check("--tls-cert", cert, "--tls-key", accounts, "--state", "none");
  expect(noPem.err).toContain(`${accounts} contains no PEM private key`);
  mkdirSync(state, { mode: 0o700 });
  chmodSync(state, 0o755);
  // an empty one would be closed to other users
  expect((await check(...tls, "--state", state)).err).toContain(`${state} is empty and open to other users (mode 755)`);
  writeFileSync(join(state, "notes"), "");
  const open = await check(...tls, "--state", state);
  expect(open.code).toBe(78);
  expect(open.err).toContain(`--state: ${state} is open to other users (mode 755): chmod 700 it`);
  chmodSync(state, 0o700);
  writeFileSync(join(state, "state"), "damaged", { mode: 0o600 });
  expect((await check(...tls, "--state", state)).err).toContain("--state: ");
  const file = await check(...tls, "--state", text);
  expect(file.err).toContain(`--state: ${text} is not a directory`);
});

test.concurrent("--first-start works as a flag only; --check warns of the minute that it skips", async () => {
  const listen = ["serve", "--listen", `holdfast+unix:${join(sandbox.folder, "socket")}`];
  const statelessCheck = await sandbox.run([...listen, "--state", "none", "--check"]);
  expect([statelessCheck.code, statelessCheck.err]).toEqual([
    0,
    expect.stringMatching(/no state is kept.*granting nothing new for up to 60 s/),
  ]);
  expect((await sandbox.run([...listen, "--state", "none", "--first-start", "--check"])).err).toBe("");
  const variable = await sandbox.run([...listen, "--state", "none", "--check"], { env: { HOLDFAST_FIRST_START: "1" } });
  expect(variable.err).toMatch(/up to 60 s/);
  const used = join(sandbox.folder, "used");
  mkdirSync(used, { mode: 0o700 });
  writeFileSync(join(used, "lock"), "", { mode: 0o600 });
  const usedCheck = await sandbox.run([...listen, "--state", used, "--first-start", "--check"]);
  expect([usedCheck.code, usedCheck.err]).toEqual([78, expect.stringContaining("this is not its first start")]);
});

test.concurrent("an unusable path or address is named: a missing directory, an address in use, a path that is too long", async () => {
  const missing = `holdfast+unix:${join(sandbox.folder, "none", "socket")}`;
  const noFolder = await sandbox.run(["serve", "--listen", missing, "--state", "none"]);
  expect(noFolder.code).toBe(69);
  expect(noFolder.err).toContain(`the directory of ${missing} does not exist`);
  const long = await sandbox.run(["serve", "--listen", `holdfast+unix:/${"x".repeat(120)}`, "--state", "none"]);
  expect(long.code).toBe(64);
  expect(long.err).toContain("the path of a socket has at most 103 bytes");
});

test.concurrent("--limit changes a limit, --http serves HTTP, --json reports both", async () => {
  const args = [
    "--listen",
    "holdfast://127.0.0.1:0",
    "--state",
    join(sandbox.folder, "limited"),
    "--http",
    "127.0.0.1:0",
    "--limit",
    "claims=1",
  ];
  const server = sandbox.start(["serve", ...args, "--json", "--quiet"]);
  const [line] = await waitUntilReady(server);
  const { listening, http } = JSON.parse(line as string) as { listening: string[]; http: string };
  expect((await fetch(`${http}/health`)).status).toBe(200);
  const url = `holdfast://${listening[0]?.replace(/.*\/\//, "")}`;
  const run = (key: string, ...command: string[]): string[] => ["run", key, "--url", url, "--", ...command];
  const { code, err } = await sandbox.run(run("one", process.execPath, PROGRAM, ...run("two", "true")));
  expect(code).toBe(77);
  expect(err).toMatch(/1 claims/);
  expect(await stopServer(server)).toBe("");
});

test.concurrent("the log has one JSON object a line, of the requested level, and no input can forge a line", async () => {
  const { cert, key, accounts, ca } = writeSecrets("log");
  const args = ["--listen", "holdfasts://127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--credentials", accounts];
  const server = sandbox.start(["serve", ...args, "--state", "none", "--log-format", "json"]);
  const [line] = await waitUntilReady(server);
  const url = `holdfasts://${line?.replace(/.*\/\//, "")}?ca=${ca}`;
  const wrongCredential = createCredential().credential;
  const refusedRun = await sandbox.run(["ls", "--url", url], { env: { HOLDFAST_CREDENTIAL: wrongCredential } });
  expect(refusedRun.code).toBe(77);
  await until(() => server.err().includes("credential"), { within: 5_000, what: "the log" });
  const err = await stopServer(server);
  const lines = err
    .trim()
    .split("\n")
    .map((entry) => JSON.parse(entry) as Record<string, unknown>);
  expect(lines).toContainEqual(expect.objectContaining({ level: "warn", time: expect.stringMatching(/^20.*Z$/) }));
  expect(err).not.toContain(wrongCredential);
  const quietServer = sandbox.start([
    "serve",
    "--listen",
    "holdfast://127.0.0.1:0",
    "--state",
    "none",
    "--log-level",
    "error",
  ]);
  await waitUntilReady(quietServer);
  expect(await stopServer(quietServer)).toBe("");
});

test.concurrent("the human log omits empty fields", async () => {
  const url = `holdfast+unix:${join(sandbox.folder, "told")}`;
  const open = sandbox.start([
    "serve",
    "--listen",
    `holdfast+unix:${join(sandbox.folder, "told")}`,
    "--state",
    join(sandbox.folder, "t"),
  ]);
  await waitUntilReady(open);
  await sandbox.run(["acquire", "k", "--url", url]);
  const { token } = JSON.parse((await sandbox.run(["ls", "--json", "--url", url])).out) as { token: string };
  await sandbox.run(["revoke", "k", "--token", token, "--reason", "gone", "--url", url]);
  const err = await stopServer(open);
  expect(err).toContain(`warning: a lock was revoked (key k, token ${token}, reason gone)\n`);
});

test.concurrent("text from clients and operators is in quotes in the human log: it cannot look like further fields", async () => {
  const address = join(sandbox.folder, "quoted");
  const url = `holdfast+unix:${address}`;
  const open = sandbox.start(["serve", "--listen", `holdfast+unix:${address}`, "--state", join(sandbox.folder, "q")]);
  await waitUntilReady(open);
  const label = "ana, account root (token 1)";
  await sandbox.run(["acquire", "a, reason none", "--label", label, "--url", url]);
  const { token } = JSON.parse((await sandbox.run(["ls", "--json", "--url", url])).out) as { token: string };
  const reason = 'done", account root, reason "none';
  await sandbox.run(["revoke", "a, reason none", "--token", token, "--reason", reason, "--url", url]);
  const err = await stopServer(open);
  expect(err).toContain(
    `warning: a lock was revoked (key "a, reason none", token ${token}, reason ${JSON.stringify(reason)}`,
  );
  // no other fields, once the quoted text is removed
  const line = err.split("\n").find((logLine) => logLine.includes("was revoked")) ?? "";
  expect(line.replace(/"(\\.|[^"\\])*"/g, '""')).toMatch(/\(key "", token \d+, reason ""(, label "")?\)$/);
});

test.concurrent("every setting has a flag and a variable, and is in --help", async () => {
  const { out } = await sandbox.run(["serve", "--help"]);
  const options = createServeOptions();
  for (const { long } of options) expect(out).toContain(long);
  expect(options.map(({ envVar }) => envVar)).toContain("HOLDFAST_TLS_CLIENT_CA");
});

test("the guide has a row for every setting and every limit, and no other flag", () => {
  const guide = readFileSync("docs/guide/server.md", "utf8");
  const options = createServeOptions();
  for (const { flags, envVar } of options) {
    const variable = envVar === undefined ? " " : ` \`${envVar}\` `;
    expect(guide).toContain(`| \`${flags}\` |${variable}|`);
  }
  for (const [name, usual] of Object.entries(DEFAULT_LIMITS)) {
    const unit = name.endsWith("Ms") ? "ms" : name.endsWith("Bytes") ? "bytes" : "";
    const [least, most] = limitRange(name as keyof typeof DEFAULT_LIMITS);
    const range = `${least} ${most === Number.MAX_SAFE_INTEGER ? "and more" : `to ${most}`}`;
    expect(guide).toContain(`| \`${name}\` | ${usual} | ${unit} | ${range} | `);
  }
  const limitRows = [...guide.matchAll(/^\| `(\w+)` \| \d+ \|/gm)].map((match) => match[1]);
  expect(limitRows).toEqual(Object.keys(DEFAULT_LIMITS));
  const rows = [...guide.matchAll(/^\| `([^`]*)` \| (?:`HOLDFAST|\|)/gm)].map((match) => match[1]);
  expect(rows).toHaveLength(options.length);
});
