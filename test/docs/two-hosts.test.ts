// The guide's chapter, as written, on two machines: network namespaces joined by a pair of virtual cables.

import { spawnSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { until } from "../../src/testing/until.ts";
import { cliSandbox, PROGRAM } from "../support/cli-sandbox.ts";

const sandbox = cliSandbox();
const [SERVER, CLIENT] = [`hfs${process.pid}`, `hfc${process.pid}`];

/** Two machines that reach each other; false where this system does not allow creating them. */
function createNetworkNamespaces(): boolean {
  if (spawnSync("openssl", ["version"]).status !== 0) return false;
  const steps = [
    `netns add ${SERVER}`,
    `netns add ${CLIENT}`,
    `link add v${process.pid}s netns ${SERVER} type veth peer name v${process.pid}c netns ${CLIENT}`,
    `-n ${SERVER} addr add 10.77.0.1/24 dev v${process.pid}s`,
    `-n ${CLIENT} addr add 10.77.0.2/24 dev v${process.pid}c`,
    `-n ${SERVER} link set lo up`,
    `-n ${CLIENT} link set lo up`,
    `-n ${SERVER} link set v${process.pid}s up`,
    `-n ${CLIENT} link set v${process.pid}c up`,
  ];
  return steps.every((step) => spawnSync("ip", step.split(" ")).status === 0);
}

const canUseNamespaces = createNetworkNamespaces();
const HOSTS = `/etc/netns/${CLIENT}`;
if (canUseNamespaces) {
  mkdirSync(HOSTS, { recursive: true });
  writeFileSync(join(HOSTS, "hosts"), "10.77.0.1 locks.example\n");
}
afterAll(() => {
  for (const name of [SERVER, CLIENT]) spawnSync("ip", ["netns", "del", name]);
  rmSync(HOSTS, { recursive: true, force: true });
});

/** The chapter's shell lines, by the step they belong to. */
function readGuideSteps(): readonly string[] {
  const guide = readFileSync("docs/guide/server.md", "utf8");
  const chapter = guide.slice(guide.indexOf("## From nothing"), guide.indexOf("What a client says"));
  return [...chapter.matchAll(/^```sh\n(.*?)^```/gms)].map((match) => match[1] as string);
}

test.skipIf(!canUseNamespaces)("a secured server and a client work on two machines, from the guide alone", async () => {
  const [folder, certificate, credential, settings, start, client] = readGuideSteps();
  const bin = join(sandbox.folder, "bin");
  mkdirSync(bin);
  symlinkSync(PROGRAM, join(bin, "holdfast"));
  chmodSync(PROGRAM, 0o755);
  const machine = (name: string, home: string) => {
    mkdirSync(home);
    const env = { HOME: home, PATH: `${bin}:${process.env.PATH}` };
    return (script: string) =>
      sandbox.startProgram(["ip", "netns", "exec", name, "bash", "-euc", script], { env, cwd: home });
  };
  const home = join(sandbox.folder, "server");
  const onServer = machine(SERVER, home);
  const commandResult = await onServer([folder, certificate, credential, settings].join("\n")).ended;
  expect(commandResult).toMatchObject({ code: 0, out: "accounts.json: 1 account, 1 credential\n" });
  const server = onServer(`cd ~/holdfast\n${start}`);
  const isUp = (): boolean => server.out().includes("listening on holdfasts://0.0.0.0:7420");
  await until(isUp, { within: 20_000, what: "the server" });
  expect(server.out()).toContain("configuration is valid");
  const other = join(sandbox.folder, "client");
  const onClient = machine(CLIENT, other);
  for (const file of ["ca.pem", "credential"]) copyFileSync(join(home, "holdfast", file), join(other, file));
  const result = await onClient(client as string).ended;
  expect(result).toMatchObject({ code: 0, out: "I hold it\n", err: "" });
  const outside = await onClient(`${client?.replace("team-a/", "team-b/")}`).ended;
  expect(outside).toMatchObject({ code: 77, out: "" });
  expect(outside.err).toContain("this credential may not");
  const anonymousResult = await onClient(`${client?.replace(/.*CREDENTIAL_FILE.*/, "")}`).ended;
  expect(anonymousResult).toMatchObject({ code: 77, out: "" });
  const namespacePids = spawnSync("ip", ["netns", "pids", SERVER], { encoding: "utf8" }).stdout.trim().split("\n");
  for (const pid of namespacePids) process.kill(Number(pid), "SIGTERM");
  await server.ended;
});
