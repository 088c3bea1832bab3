import { chmodSync, existsSync, lstatSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { userInfo } from "node:os";
import { resolve } from "node:path";
import { expect } from "vitest";
import { until } from "../support/wait-for.ts";
import { GATED, openGate } from "./children.ts";
import { counting } from "./counting.ts";
import { inNamespace, NAMESPACE } from "./namespace.ts";
import { isLiving, signal } from "./processes.ts";
import type { Running, Scene } from "./scene.ts";
import { PROGRAM, test } from "./scene.ts";

const STARTERS = 20;

test(`${STARTERS} wrappers started at once on a stale socket file: one server, and none of them overlap`, {
  timeout: 60_000,
}, async ({ here }) => {
  const first = here.start(["run", "k", "--", "true"]);
  expect((await first.ended).code, first.err()).toBe(0);
  const [old] = here.servers();
  signal(old!, "SIGKILL");
  await until(() => !isLiving(old!), { within: 5_000, what: "the end of the first server" });
  expect(lstatSync(`${here.directory}/socket`).isSocket()).toBe(true);

  const count = counting(here.folder);
  const began = performance.now();
  const all = Array.from({ length: STARTERS }, () => here.start(["run", "k", "--", ...count.command(0)]));
  for (const one of all) expect(await one.ended, one.err()).toEqual({ code: 0, signal: null });
  expect(here.everListened()).toHaveLength(2);
  await until(() => here.servers().length === 1, { within: 5_000, what: "the end of those that lost the election" });
  expect(count.history()).toMatchObject({ faults: [], counter: STARTERS });
  console.log(
    `figure: ${STARTERS} wrappers at once on a stale socket: one server, all served after ${((performance.now() - began) / 1_000).toFixed(1)} s`,
  );
});

test.concurrent("out=$(holdfast run k -- echo hi) returns at once, although it started the server: that keeps no descriptor of its starter", async ({
  here,
}) => {
  const began = performance.now();
  const shell = here.program([
    // above 15, where Node does not close what it inherits by itself
    "bash",
    "-c",
    `out=$("${process.execPath}" "${PROGRAM}" run k -- echo hi 20>&1 2>&1); echo "got $out"`,
  ]);
  expect((await shell.ended).code).toBe(0);
  await until(() => shell.out() === "got hi\n", { within: 5_000, what: "its output" });
  // a server that kept the descriptor would keep us for ten minutes
  expect(performance.now() - began).toBeLessThan(30_000);
  const [server] = here.servers();
  expect(server).toBeDefined();
  console.log(
    `figure: out=$(holdfast run k -- echo hi) with the start of the server took ${(performance.now() - began).toFixed(0)} ms`,
  );
});

/** The scene's folder as the home of whoever runs it, in a password file that only the namespace sees. */
function withHome(here: Scene, home: string, command: readonly string[], setUp = ""): readonly [string, ...string[]] {
  const { uid, gid } = NAMESPACE?.includes("-rm") === true ? { uid: 0, gid: 0 } : userInfo();
  writeFileSync(here.path("passwd"), `somebody:x:${uid}:${gid}:somebody:${home}:/bin/sh\n`);
  return inNamespace(`mount --bind "${here.path("passwd")}" /etc/passwd\n${setUp}`, command);
}

const NO_DIRECTORY = { env: { HOLDFAST_DIR: undefined } };
const RUN = [process.execPath, PROGRAM, "run", "k"] as const;

test.skipIf(NAMESPACE === null)(
  "a run with an empty environment (env -i) and one from a login shell exclude each other: same user, same server",
  { concurrent: true },
  async ({ here }) => {
    const home = here.path("home");
    mkdirSync(home, { mode: 0o700 });
    const login = [
      ...[
        "env",
        "-i",
        `HOME=${here.path("elsewhere")}`,
        `TMPDIR=${here.folder}`,
        `XDG_RUNTIME_DIR=${here.folder}`,
        "LANG=C.UTF-8",
      ],
      ...["PATH=/usr/local/bin:/usr/bin:/bin", "sh", "-l", "-c", `"$@"`, "sh", ...RUN],
    ];
    const holder = here.program(withHome(here, home, [...login, "--", ...GATED]), NO_DIRECTORY);
    await until(() => holder.out() !== "" || holder.hasEnded(), { within: 10_000, what: "the holder" });
    expect(holder.hasEnded(), holder.err()).toBe(false);

    const empty = (...more: readonly string[]): Running =>
      here.program(withHome(here, home, ["env", "-i", ...RUN, ...more]), NO_DIRECTORY);
    const busy = empty("--no-wait", "--", "/bin/echo", "entered");
    expect((await busy.ended).code, busy.err()).toBe(124);
    expect(busy.out()).toBe("");
    openGate(here);
    expect(await holder.ended).toEqual({ code: 0, signal: null });
    const free = empty("--wait", "5s", "--", "/bin/echo", "entered");
    expect((await free.ended).code, free.err()).toBe(0);
    // one server, in the directory that the password database leads to
    expect(here.servers()).toHaveLength(1);
    expect(existsSync(`${home}/.holdfast`)).toBe(true);
    expect(existsSync(here.path("elsewhere"))).toBe(false);
  },
);

const refusals: readonly (readonly [string, (path: string) => void, RegExp])[] = [
  ["a link to a directory of ours", linked, /symbolic link/],
  ["a link to nowhere", (path) => symlinkSync(`${path}-nowhere`, path), /symbolic link/],
  ["open to others", openToOthers, /open to others/],
  ["a file", (path) => writeFileSync(path, ""), /not a directory/],
];

function linked(path: string): void {
  mkdirSync(`${path}-real`, { mode: 0o700 });
  symlinkSync(`${path}-real`, path);
}

function openToOthers(path: string): void {
  mkdirSync(path);
  chmodSync(path, 0o755);
}

test.concurrent.for(refusals)(
  "a user directory that is %s is refused, by client and server, and nothing is run",
  async ([, make, why], { here }) => {
    make(here.directory);
    const run = here.start(["run", "k", "--", "touch", "ran"]);
    expect((await run.ended).code).toBe(77);
    expect(run.err()).toMatch(why);
    const server = here.start(["serve"]);
    expect((await server.ended).code).not.toBe(0);
    expect(server.err()).toMatch(why);
    expect(existsSync(here.path("ran"))).toBe(false);
  },
);

test.skipIf(process.getuid?.() !== 0)(
  "a user directory of another user is refused, and nothing is run",
  { concurrent: true },
  async ({ here }) => {
    mkdirSync(here.directory, { mode: 0o700 });
    expect((await here.program(["chown", "65534", here.directory]).ended).code).toBe(0);
    const run = here.start(["run", "k", "--", "touch", "ran"]);
    expect((await run.ended).code).toBe(77);
    expect(run.err()).toMatch(/belongs to the user with id 65534/);
    expect(existsSync(here.path("ran"))).toBe(false);
  },
);

test.skipIf(NAMESPACE === null)(
  "a directory in /tmp that somebody made before a user without a home is refused, and nothing is run",
  { concurrent: true },
  async ({ here }) => {
    // the program may itself lie in /tmp, which this one does not see
    const squat = `mount --bind "${resolve(".")}" /mnt\nmount -t tmpfs none /tmp\nmkdir -m 0777 "/tmp/holdfast-$(id -u)"\ncd /`;
    const command = [process.execPath, "/mnt/dist/cli/main.js", "run", "k", "--", "echo", "entered"];
    // nor what else the run of tests may preload from there
    const env = { ...NO_DIRECTORY.env, NODE_OPTIONS: undefined };
    const run = here.program(withHome(here, "/nonexistent", command, squat), { env });
    expect((await run.ended).code, run.err()).toBe(77);
    expect(run.err()).toMatch(/\/tmp\/holdfast-\d+ is open to others/);
    expect(run.out()).toBe("");
  },
);
