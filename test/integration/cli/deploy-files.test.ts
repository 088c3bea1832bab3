/**
 * The files of deploy/: the server knows all their settings, and whatever runs without systemd, a container or a cluster
 * works as documented.
 */

import { execFile, spawnSync } from "node:child_process";
import { chmodSync, chownSync, mkdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { get } from "node:https";
import { join } from "node:path";
import { expect, test } from "vitest";
import { createCredential } from "../../../src/auth/accounts-file.ts";
import { createServeOptions, isMember } from "../../../src/cli/commands/serve/settings.ts";
import { DEFAULT_LIMITS } from "../../../src/server/limits.ts";
import { until } from "../../../src/testing/until.ts";
import { createAuthority, writeCertificate } from "../../support/certificates.ts";
import type { RunningCommand } from "../../support/cli-sandbox.ts";
import { cliSandbox, isProcessAlive, PROGRAM } from "../../support/cli-sandbox.ts";

const sandbox = cliSandbox();
const SECRETS = ["cert.pem", "key.pem", "accounts.json"];

const readDeployFile = (name: string): string => readFileSync(join("deploy", name), "utf8");
const unit = readDeployFile("holdfast.service");
const dockerfile = readDeployFile("Dockerfile");
const kubernetes = readDeployFile("kubernetes.yaml");

/** All values of a directive of the unit. */
const settingsIn = (name: string): string[] =>
  unit.split("\n").flatMap((line) => (line.startsWith(`${name}=`) ? [line.slice(name.length + 1)] : []));
/** The server.json inside the manifest. */
const manifestSettings = /^ {2}server\.json: \|\n((?: {4}.*\n)+)/m.exec(kubernetes)?.[1] ?? "";
const execForm = (instruction: string): string[] =>
  JSON.parse(new RegExp(`^${instruction} (\\[.*\\])$`, "m").exec(dockerfile)?.[1] ?? "") as string[];

/** Stand-ins for /etc/holdfast and /var/lib/holdfast, and the settings with the test's own ports. */
function installConfig(
  name: string,
  settings: string,
): { readonly folder: string; readonly config: string; readonly credential: string } {
  const folder = join(sandbox.folder, name);
  const secret = join(folder, "secret");
  mkdirSync(secret, { recursive: true });
  const issuer = createAuthority();
  writeCertificate(secret, issuer.issue(["127.0.0.1"]), issuer);
  const rules = [{ prefix: "", rights: ["acquire"] }];
  const { credential, hash } = createCredential();
  const accounts = [{ name: "a", hashes: [hash], rules }];
  writeFileSync(join(secret, "accounts.json"), JSON.stringify({ version: 1, accounts }), { mode: 0o600 });
  const localSettings = settings
    .replaceAll("/etc/holdfast/secret/tls.crt", join(secret, "cert.pem"))
    .replaceAll("/etc/holdfast/secret/tls.key", join(secret, "key.pem"))
    .replaceAll(/\/etc\/holdfast(\/secret)?/g, secret)
    .replaceAll("/var/lib/holdfast", join(folder, "var"))
    .replaceAll(/0\.0\.0\.0:742[01]/g, "0.0.0.0:0");
  const config = join(folder, "server.json");
  writeFileSync(config, localSettings);
  return { folder, config, credential };
}

/** The words of a command in a file, with the test's program and settings. */
function splitCommand(command: string, config: string): string[] {
  const [program = "", ...args] = command.split(" ");
  expect(program).toMatch(/(^|\/)holdfast$/);
  return args.map((arg) => arg.replace("/etc/holdfast/server.json", config));
}

async function waitForListening(server: RunningCommand): Promise<number> {
  await until(() => server.out().includes("HTTP on") || !isProcessAlive(server.pid), {
    within: 20_000,
    what: "the server",
  });
  expect(server.out(), server.err()).toMatch(/^listening on holdfasts:\/\/0\.0\.0\.0:\d+\nHTTP on https:/);
  return Number(/HTTP on \S+:(\d+)/.exec(server.out())?.[1]);
}

/** As a kubelet asks: by address, without checking the certificate. */
function httpStatus(port: number, path: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const request = get({ host: "127.0.0.1", port, path, rejectUnauthorized: false, agent: false }, (answer) => {
      answer.resume();
      resolve(answer.statusCode);
    });
    request.on("error", reject);
  });
}

test("the server knows every setting and every flag in the files of deploy/", () => {
  const options = createServeOptions();
  const optionNames = options.filter(isMember).map((option) => option.name());
  for (const settings of [readDeployFile("server.json"), manifestSettings]) {
    const names = Object.keys(JSON.parse(settings) as object);
    expect(names.length).toBeGreaterThan(4);
    for (const name of names) expect(optionNames).toContain(name);
  }
  const flags = [unit, dockerfile, kubernetes]
    .flatMap((text) => text.split("\n").filter((line) => !line.startsWith("#") && /holdfast|serve/.test(line)))
    .flatMap((line) =>
      [.../ "?(--[a-z-]+)|"(--[a-z-]+)"/g[Symbol.matchAll](line)].map(([, one, other]) => one ?? other),
    )
    .filter(
      (flag) => !["--global", "--ignore-scripts", "--omit", "--no-audit", "--no-fund", "--from"].includes(flag ?? ""),
    );
  expect(flags.length).toBeGreaterThan(2);
  for (const flag of flags) expect(options.map(({ long }) => long)).toContain(flag);
});

test("the unit's command passes --check, serves, reloads by its ExecReload and stops in order", async () => {
  const { config } = installConfig("unit", readDeployFile("server.json"));
  const [start = ""] = settingsIn("ExecStart");
  const args = splitCommand(start, config);
  expect(await sandbox.run([...args, "--check"])).toMatchObject({ code: 0, out: "configuration is valid\n" });
  const server = sandbox.start(args);
  const port = await waitForListening(server);
  const [reload = ""] = settingsIn("ExecReload");
  expect(spawnSync("sh", ["-c", reload.replace("$MAINPID", String(server.pid))]).status).toBe(0);
  await until(() => server.err().includes("reloaded: credentials"), { within: 10_000, what: "the reload" });
  expect([await httpStatus(port, "/health"), await httpStatus(port, "/ready")]).toEqual([200, 200]);
  server.process.kill("SIGTERM");
  expect((await server.ended).code).toBe(0);
  // an error that a restart cannot cure causes no restart
  const [never = ""] = settingsIn("RestartPreventExitStatus");
  writeFileSync(config, '{"lisen": []}');
  const { code } = await sandbox.run(args);
  expect(never.split(" ")).toContain(String(code));
});

test("the unit allows enough descriptors for the limits and more time than a stop takes, and systemd accepts it", () => {
  expect(Number(settingsIn("LimitNOFILE"))).toBeGreaterThan(2 * DEFAULT_LIMITS.connections);
  expect(Number.parseInt(String(settingsIn("TimeoutStopSec")), 10)).toBeGreaterThan(10);
  const { stderr, status } = spawnSync("systemd-analyze", ["verify", "deploy/holdfast.service"], { encoding: "utf8" });
  if (status === null) return;
  // the program and its manual page are not installed here
  const complaints = stderr.split("\n").filter((line) => line !== "" && !/not executable|Command 'man /.test(line));
  expect(complaints).toEqual([]);
});

test("the image runs as a numeric user other than root, and its health check distinguishes a running server from a missing one", async () => {
  expect(dockerfile).toMatch(/^USER [1-9]\d*:[1-9]\d*$/m);
  const [user] = /(?<=^USER )\d+/m.exec(dockerfile) ?? [];
  expect(kubernetes).toContain(`runAsUser: ${user}\n`);
  const { config } = installConfig("image", readDeployFile("server.json"));
  const args = splitCommand([...execForm("ENTRYPOINT"), ...execForm("CMD")].join(" "), config);
  const server = sandbox.start(args);
  const port = await waitForListening(server);
  const [node, ...check] = JSON.parse(/^ {2}CMD (\[.*\])$/m.exec(dockerfile)?.[1] ?? "") as string[];
  expect(node).toBe("node");
  const checked = (): Promise<number> =>
    new Promise((resolve) => {
      const localCheck = check.map((arg) => arg.replace("7421", String(port)));
      execFile(process.execPath, localCheck, (error) => resolve(error === null ? 0 : Number(error.code)));
    });
  expect(await checked()).toBe(0);
  server.process.kill("SIGTERM");
  await server.ended;
  expect(await checked()).toBe(1);
});

test("the manifest: one replica that keeps its clients' locks in recovery, ports that the server listens on, probes that it answers", async () => {
  expect(kubernetes).toMatch(/^ {2}replicas: 1$/m);
  expect(kubernetes).toContain("publishNotReadyAddresses: true");
  const { listen, http } = JSON.parse(manifestSettings) as {
    readonly listen: readonly string[];
    readonly http: string;
  };
  for (const address of [...listen, http]) expect(kubernetes).toContain(`containerPort: ${address.split(":").at(-1)} `);
  expect(kubernetes).toContain('args: ["serve", "--config", "/etc/holdfast/server.json"]');
  const probes = [...kubernetes.matchAll(/(\w+)Probe:\n +httpGet: \{ path: (\S+), port: http, scheme: HTTPS \}/g)];
  expect(probes.map(([, name, path]) => [name, path])).toEqual([
    ["startup", "/health"],
    ["readiness", "/ready"],
    ["liveness", "/health"],
  ]);
  const { folder, config, credential } = installConfig("cluster", manifestSettings);
  const server = sandbox.start(["serve", "--config", config]);
  const port = await waitForListening(server);
  for (const [, , path = ""] of probes) expect(await httpStatus(port, path)).toBe(200);
  const lockPort = /:(\d+)\n/.exec(server.out())?.[1];
  const url = `holdfasts://127.0.0.1:${lockPort}?ca=${join(folder, "secret", "ca.pem")}`;
  const used = await sandbox.run(["run", "k", "--url", url, "--", "true"], {
    env: { HOLDFAST_CREDENTIAL: credential },
  });
  expect(used).toMatchObject({ code: 0 });
  server.process.kill("SIGKILL");
  await server.ended;
  // after a crash it is alive and not ready: it must be reachable, and must not be restarted for it
  const next = sandbox.start(["serve", "--config", config]);
  const nextPort = await waitForListening(next);
  expect([await httpStatus(nextPort, "/health"), await httpStatus(nextPort, "/ready")]).toEqual([200, 503]);
  next.process.kill("SIGTERM");
  await next.ended;
});

/** A volume and a secret as a kubelet mounts them: owned by root, with a group, through links. */
function mountPath(folder: string, group: number): void {
  const [secret, real, state] = [join(folder, "secret"), join(folder, "secret", "..data"), join(folder, "var")];
  mkdirSync(real);
  for (const name of SECRETS) {
    const target = join(real, name);
    renameSync(join(secret, name), target);
    chownSync(target, 0, group);
    chmodSync(target, 0o440);
    symlinkSync(join("..data", name), join(secret, name));
  }
  mkdirSync(state);
  chownSync(state, 0, group);
  chmodSync(state, 0o2775);
  for (const path of [sandbox.folder, folder]) chmodSync(path, 0o755);
}

/** Only root can change to the image's user; and that user must be able to read the program. */
const asUser = ["--reuid", "1000", "--regid", "1000", "--clear-groups", process.execPath, PROGRAM] as const;
const canChange = spawnSync("setpriv", [...asUser, "--version"]).status === 0;

test.skipIf(!canChange)(
  "with a volume and a secret as a cluster mounts them the server starts, and starts again",
  async () => {
    const { folder, config } = installConfig("volume", manifestSettings);
    mountPath(folder, 1000);
    for (let attempt = 0; attempt < 2; attempt++) {
      const server = sandbox.startProgram(["setpriv", ...asUser, "serve", "--config", config]);
      await waitForListening(server);
      server.process.kill("SIGTERM");
      expect((await server.ended).code).toBe(0);
    }
  },
);
