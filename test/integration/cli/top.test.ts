/** `holdfast top` in a real terminal, that of tmux. */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import stringWidth from "string-width";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createDriver } from "../../../src/client/driver-url.ts";
import type { Lock, Locks } from "../../../src/index.ts";
import { connect } from "../../../src/index.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { cliSandbox, isProcessAlive, PROGRAM } from "../../support/cli-sandbox.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import type { RedisServer } from "../../support/stores/redis.ts";
import { redisUnavailableReason, startRedis } from "../../support/stores/redis.ts";
import type { TmuxServer, TmuxTerminal } from "../../support/tmux.ts";
import { startTmux, tmuxUnavailableReason } from "../../support/tmux.ts";

const sandbox = cliSandbox();
const TOP = `${process.execPath} ${PROGRAM} top --interval 100ms`;
let tmux: TmuxServer;
const clients = new Set<Locks>();
/** Held until the end: a lock whose handle is garbage is warned of. */
const locks: Lock[] = [];

beforeAll(() => {
  tmux = startTmux(join(sandbox.folder, "tmux"));
});
afterAll(async () => {
  for (const client of clients) await client.close();
  if (tmuxUnavailableReason() === null) await tmux.close();
});

/** A client whose claims have this label; its requests end with the test file. */
async function openClient(url: string, label: string): Promise<Locks> {
  const client = await connect(url, { label });
  clients.add(client);
  return client;
}

/** Requests for a key that is held: of readers, since a client makes one claim for all of its writers. */
function wait(client: Locks, key: string, count: number): void {
  for (let request = 0; request < count; request++) {
    client
      .rw(key)
      .read.acquire()
      .catch(() => undefined);
  }
}

/** A shell in a terminal, from which `top` is started; `folder` is where it writes its settings. */
async function openShell(env: Readonly<Record<string, string>> = {}, columns = 80, lines = 24): Promise<TmuxTerminal> {
  return tmux.open(columns, lines, { HOLDFAST_DIR: sandbox.directory, ...env });
}

let fileCount = 0;

/** Starts `top` between two reads of the settings of the terminal, and gives the file of both. */
async function startTop(terminal: TmuxTerminal, args: string): Promise<string> {
  const file = join(sandbox.folder, `settings-${fileCount++}`);
  await terminal.type(`stty -g >${file}; ${TOP} ${args}; echo "code=$?"; stty -g >>${file}`);
  await terminal.press("Enter");
  return file;
}

/** Waits for the end of `top`, and checks that the terminal is as it was. */
async function expectRestored(terminal: TmuxTerminal, settingsFile: string, code: number): Promise<void> {
  const lines = await terminal.shows(new RegExp(`code=${code}\n\\$`));
  expect(lines.join("\n")).toMatch(/^\$ stty -g/m);
  expect(lines.join("\n")).not.toContain("KEY");
  expect(await terminal.read("#{alternate_on} #{cursor_flag} #{wrap_flag}")).toBe("0 1 1");
  const settings = await until(
    () => {
      const read = readFileSync(settingsFile, "utf8").trim().split("\n");
      return read.length === 2 ? read : null;
    },
    { within: 20_000, what: "the settings after top" },
  );
  expect(settings[1]).toBe(settings[0]);
}

/** The first cells of the rows. */
function keysOf(lines: readonly string[]): string[] {
  const start = lines.findIndex((line) => line.startsWith("KEY")) + 1;
  const end = lines.indexOf("", start);
  return lines.slice(start, end === -1 ? -1 : end).map((line) => line.split(" ")[0] as string);
}

describe.skipIf(tmuxUnavailableReason() !== null)("on a screen", () => {
  describe("of a file of SQLite", () => {
    let url: string;
    beforeAll(async () => {
      url = `sqlite:${join(sandbox.folder, "locks.db")}`;
      const holder = await openClient(url, "ana@web-1 pid 4121 (node)");
      for (const key of ["invoice:1", "invoice:2", "deploy"]) locks.push(await holder.acquire(key));
      const waiter = await openClient(url, "bob@web-2 pid 7 (sh)");
      wait(waiter, "invoice:2", 3);
      wait(waiter, "deploy", 1);
      await until(async () => (await holder.list("")).length === 7, { within: 20_000, what: "the waiters" });
    });

    test.concurrent("it shows header, figures and rows, sorts, filters, pauses, shows help, and q restores the terminal", async () => {
      const terminal = await openShell();
      const settingsFile = await startTop(terminal, `--url ${url}`);
      const lines = await terminal.shows(/invoice:2 .* 3 .*\n/);
      expect(lines).toHaveLength(24);
      expect(lines[0]).toMatch(/^holdfast top {2}\S*locks\.db +every \d+ m?s$/);
      expect(lines[1]).toMatch(/^3 held, 4 waiting, longest wait \d+ m?s$/);
      expect(lines[3]).toMatch(/^KEY +WAITERS↓ +LONGEST +HELD +LEASE +HOLDER$/);
      expect(lines[4]).toMatch(/^invoice:2 +3 +\d+ m?s +\d+ m?s +\d+ s +ana@web-1 pid 4121 \(node\)$/);
      expect(keysOf(lines)).toEqual(["invoice:2", "deploy", "invoice:1"]);
      expect(lines[23]).toMatch(/^q quit +s sort .* 1-3 of 3$/);
      expect(await terminal.read("#{alternate_on} #{cursor_flag}")).toBe("1 0");

      await terminal.type("sss");
      expect(keysOf(await terminal.shows(/^KEY↑/m))).toEqual(["deploy", "invoice:1", "invoice:2"]);
      await terminal.type("r");
      expect(keysOf(await terminal.shows(/^KEY↓/m))).toEqual(["invoice:2", "invoice:1", "deploy"]);

      await terminal.type("/voice:1q");
      await terminal.press("BSpace");
      expect(keysOf(await terminal.shows(/filter: voice:1_ .* 1-1 of 1$/m))).toEqual(["invoice:1"]);
      await terminal.press("Enter");
      await terminal.shows(/filter: voice:1 /);
      await terminal.press("Escape");
      await terminal.shows(/1-3 of 3$/m);
      await terminal.type("/nothing");
      await terminal.shows(/^no row contains "nothing"$/m);
      await terminal.press("Escape");

      await terminal.type(" ");
      await terminal.shows(/^paused; rows \d+ m?s old$/m);
      await terminal.type(" ?");
      expect(await terminal.shows(/^space +pause, continue$/m)).not.toContain("paused");
      await terminal.type("q");
      await terminal.shows(/1-3 of 3$/m);
      await terminal.type("q");
      await expectRestored(terminal, settingsFile, 0);
    });

    test.concurrent("it is drawn again in the size of the terminal", async () => {
      const terminal = await openShell();
      const settingsFile = await startTop(terminal, `--url ${url}`);
      await terminal.shows(/1-3 of 3$/m);
      await terminal.resize(40, 12);
      const small = await terminal.shows((lines) => lines.length === 12 && lines[11]?.endsWith("1-3 of 3") === true);
      expect(small[3]).toMatch(/^KEY +WAITERS↓ +LONGEST +HELD$/);
      expect(keysOf(small)).toEqual(["invoice:2", "deploy", "invoice:1"]);
      await terminal.resize(30, 6);
      await terminal.shows(/^the terminal is too small:\n40x8 at least/);
      await terminal.resize(200, 50);
      const large = await terminal.shows((lines) => lines.length === 50 && lines[49]?.endsWith("1-3 of 3") === true);
      expect(large[3]).toMatch(/^KEY +WAITERS↓ +LONGEST +HELD +LEASE +MODE +HOLDER$/);
      expect(large[4]).toMatch(/ exclusive +ana@web-1 pid 4121 \(node\)$/);
      await terminal.type("q");
      await expectRestored(terminal, settingsFile, 0);
    });

    test.concurrent("TERM restores the terminal, and so do Ctrl-Z and fg", async () => {
      const terminal = await openShell();
      const settingsFile = await startTop(terminal, `--url ${url}`);
      await terminal.shows(/1-3 of 3$/m);
      await terminal.press("C-z");
      await terminal.shows(/Stopped/);
      expect(await terminal.read("#{alternate_on} #{cursor_flag} #{wrap_flag}")).toBe("0 1 1");
      await terminal.type("jobs -p; stty -g >/dev/null; fg");
      await terminal.press("Enter");
      await terminal.shows(/1-3 of 3$/m);
      expect(await terminal.read("#{alternate_on} #{cursor_flag}")).toBe("1 0");
      await terminal.type("s");
      await terminal.shows(/LONGEST↓/);
      const pid = findTop(await terminal.read("#{pane_pid}"));
      process.kill(pid, "SIGTERM");
      await until(() => !isProcessAlive(pid), { within: 20_000, what: "the end of top" });
      await terminal.shows(/Terminated[^\n]*\n\$/);
      expect(await terminal.read("#{alternate_on} #{cursor_flag} #{wrap_flag}")).toBe("0 1 1");
      await terminal.type(`stty -g >>${settingsFile}; echo ready`);
      await terminal.press("Enter");
      await terminal.shows(/^ready$/m);
      const settings = readFileSync(settingsFile, "utf8").trim().split("\n");
      expect(new Set(settings).size).toBe(1);
    });
  });

  test.concurrent("keys and labels of other clients reach the terminal as text, and wide characters move no column", async () => {
    const file = join(sandbox.folder, "hostile.db");
    const driver = await createDriver(`sqlite:${file}`);
    await driver.open(NO_EVENTS);
    const claim = async (key: string, label: string): Promise<unknown> =>
      driver.claim({
        id: `hostile-${key}`,
        locks: [{ key, permits: ALL_PERMITS, limit: ALL_PERMITS }],
        ttlMs: 600_000,
        tokenCount: 1,
        floor: 0n,
        wait: true,
        label,
      });
    await claim("a\u001b[2J\u001b]0;title\u0007", "eve\r\n\u001b[31mred\u202eder");
    await claim("漢字の鍵🔒👩‍👩‍👧", "漢字@web-1 pid 4194304 (node)");
    await claim("plain", "ana");
    const terminal = await openShell({ NO_COLOR: "1" }, 120);
    await startTop(terminal, `--url sqlite:${file}`);
    const lines = await terminal.shows(/1-3 of 3$/m);
    const text = lines.join("\n");
    expect(text).toContain("a\\u{1b}[2J\\u{1b}]0;title\\u{7}");
    expect(text).toContain("eve\\u{d}\\u{a}\\u{1b}[31mred\\u{202e}der");
    expect(text).toContain("漢字の鍵🔒");
    const columnOf = (part: string): number[] =>
      lines.flatMap((line) => (line.includes(part) ? [widthBefore(line, part)] : []));
    expect(new Set([...columnOf("exclusive"), ...columnOf("MODE")])).toHaveLength(1);
    expect(await terminal.read("#{pane_title}")).not.toBe("title");
    expect((await terminal.capture(true)).join("\n")).not.toContain("\u001b[");
    await terminal.type("q");
    await terminal.shows(/code=0/);
    await driver.close();
  });

  test.concurrent("a server that is killed: the rows stay, with their age and the reason, until it is back", async () => {
    const socket = join(sandbox.folder, "killed.socket");
    const url = `holdfast+unix:${socket}`;
    const args = ["serve", "--listen", url, "--state", join(sandbox.folder, "killed-state")];
    const first = sandbox.start(args);
    await until(() => first.out().includes("listening"), { within: 20_000, what: "the server" });
    const holder = await openClient(url, "ana@web-1 pid 4121 (node)");
    locks.push(await holder.acquire("survivor"));
    const terminal = await openShell();
    const settingsFile = await startTop(terminal, `--url ${url}`);
    await terminal.shows(/^survivor .*1-1 of 1$/ms);
    first.process.kill("SIGKILL");
    const lines = await terminal.shows(/rows \d+ m?s old, trying again/);
    expect(lines[2]).toMatch(/^the store .*; rows \d+ m?s old/);
    expect(keysOf(lines)).toEqual(["survivor"]);
    const second = sandbox.start(args);
    await terminal.shows((shown) => shown[2] === "" && keysOf(shown).includes("survivor"));
    await terminal.type("q");
    await expectRestored(terminal, settingsFile, 0);
    await holder.close();
    second.process.kill("SIGTERM");
    await second.ended;
  });

  describe.skipIf(redisUnavailableReason() !== null)("of Redis", () => {
    let redis: RedisServer;
    beforeAll(async () => {
      redis = await startRedis();
    });
    afterAll(() => redis.stop());

    test.concurrent("it shows more rows than fit, scrolls, and follows what happens", async () => {
      const url = `${redis.url}?silenceWarnings=appendonly`;
      const [holder, waiter] = await Promise.all([openClient(url, "ana"), openClient(url, "bob")]);
      const keys = Array.from({ length: 30 }, (_, index) => `k${String(index).padStart(2, "0")}`);
      const held = await Promise.all(keys.map((key) => holder.acquire(key)));
      const terminal = await openShell({ HOLDFAST_URL: redis.url });
      await startTop(terminal, "k");
      expect(keysOf(await terminal.shows(/1-19 of 30$/m))).toEqual(keys.slice(0, 19));
      await terminal.press("Down", "j", "j", "Up");
      expect(keysOf(await terminal.shows(/3-21 of 30$/m))).toEqual(keys.slice(2, 21));
      await terminal.press("NPage");
      await terminal.shows(/12-30 of 30$/m);
      await terminal.press("Home");
      await terminal.shows(/1-19 of 30$/m);
      wait(waiter, "k29", 2);
      await terminal.shows(/^k29 +2 /m);
      await Promise.all(held.map((lock) => lock.release()));
      await terminal.shows(/^2 held, 0 waiting$/m);
      await terminal.type("q");
      // a warning of the driver does not disturb the screen
      await terminal.shows(/^holdfast: warning: redis: no append-only file.*code=0$/ms);
      await Promise.all([holder.close(), waiter.close()]);
    });
  });

  test.concurrent("a server that refuses: the rows stay with the reason; without rows it ends with that", async () => {
    const create = async (): Promise<{ readonly credential: string; readonly account: object }> =>
      JSON.parse((await sandbox.run(["credential", "new", "--json"])).out);
    const { credential, account } = await create();
    const accounts = join(sandbox.folder, "accounts.json");
    writeFileSync(accounts, JSON.stringify({ version: 1, accounts: [account] }), { mode: 0o600 });
    const url = `holdfast+unix:${join(sandbox.folder, "refusing.socket")}`;
    const server = sandbox.start(["serve", "--listen", url, "--state", "none", "--credentials", accounts]);
    await until(() => server.out().includes("listening"), { within: 20_000, what: "the server" });
    const credentialFile = join(sandbox.folder, "credential");
    writeFileSync(credentialFile, credential, { mode: 0o600 });
    const terminal = await openShell({ HOLDFAST_CREDENTIAL_FILE: credentialFile });
    await startTop(terminal, `--url ${url}`);
    await terminal.shows(/^no locks$/m);
    const { account: other } = await create();
    writeFileSync(accounts, JSON.stringify({ version: 1, accounts: [other] }));
    server.process.kill("SIGHUP");
    await terminal.shows(/^the store refused: no valid credential was given; rows \d+ m?s old, trying again$/m);
    await terminal.type("q");
    await terminal.shows(/code=0/);
    await startTop(terminal, `--url ${url}`);
    await terminal.shows(/^code=77$/m);
    server.process.kill("SIGTERM");
    await server.ended;
  });

  test.concurrent("an error of the program restores the terminal before it is printed", async () => {
    const terminal = await openShell();
    const fault = "data:text/javascript,process.on('SIGUSR2',()=>{throw(Error('broken'))})";
    const url = `sqlite:${join(sandbox.folder, "fault.db")}`;
    await terminal.type(`${process.execPath} --import "${fault}" ${PROGRAM} top --url ${url}; echo "code=$?"`);
    await terminal.press("Enter");
    await terminal.shows(/^no locks$/m);
    process.kill(findTop(await terminal.read("#{pane_pid}")), "SIGUSR2");
    await terminal.shows(/^holdfast: internal error \(please report it\): broken\ncode=70$/m);
    expect(await terminal.read("#{alternate_on} #{cursor_flag} #{wrap_flag}")).toBe("0 1 1");
  });

  test.concurrent("it says that there are no locks, Ctrl-C ends it, and so does a first list that fails", async () => {
    const terminal = await openShell();
    await startTop(terminal, `none: --url sqlite:${join(sandbox.folder, "empty.db")}`);
    await terminal.shows(/^no locks on keys that begin with "none:"$/m);
    await terminal.press("C-c");
    // the shell sees the signal, and so does not run what follows in the same line
    await terminal.shows((lines) => lines.includes("$"));
    await terminal.type('echo "ended: $?"');
    await terminal.press("Enter");
    await terminal.shows(/^ended: 130$/m);
    const settingsFile = await startTop(terminal, "--url holdfast+unix:/tmp/hf-absent/listens");
    await terminal.shows(/^holdfast: \S+ does not exist: no server listens\n? there\ncode=69/m);
    expect(readFileSync(settingsFile, "utf8")).not.toBe("");
  });
});

test("without a screen it prints one table, and with --once --json one object", async () => {
  const url = `sqlite:${join(sandbox.folder, "plain.db")}`;
  const holder = await openClient(url, "ana@web-1 pid 4121 (node)");
  locks.push(await holder.acquire("deploy"));
  const { code, out, err } = await sandbox.run(["top", "--url", url]);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(out.split("\n")).toEqual([
    `${url}: 1 held, 0 waiting`,
    "",
    expect.stringMatching(/^KEY +WAITERS +LONGEST +HELD +LEASE +MODE +HOLDER$/),
    expect.stringMatching(/^deploy +0 +\d+ m?s +\d+ s +exclusive +ana@web-1 pid 4121 \(node\)$/),
    "",
  ]);
  const json = await sandbox.run(["top", "dep", "--url", url, "--once", "--json"]);
  expect(JSON.parse(json.out)).toMatchObject({
    store: url,
    prefix: "dep",
    held: 1,
    waiting: 0,
    longestWaitMs: null,
    complete: true,
    rows: [{ key: "deploy", mode: "exclusive", holders: [{ label: "ana@web-1 pid 4121 (node)" }], waiters: 0 }],
  });
  expect(json.out).not.toContain("hf1.");
});

test.each([
  [["--json"], 64, "--json needs --once"],
  [["--interval", "10ms"], 64, "--interval must be from 100ms"],
  [["--url", "holdfast+unix:/tmp/hf-absent/listens"], 69, "no server listens there"],
])("top %j exits with %i", async (args, code, message) => {
  expect(await sandbox.run(["top", ...args])).toMatchObject({ code, out: "", err: expect.stringContaining(message) });
});

/** The process id of `top`, which this shell has started. */
function findTop(shellPid: string): number {
  return Number(readFileSync(`/proc/${shellPid}/task/${shellPid}/children`, "latin1"));
}

function widthBefore(line: string, part: string): number {
  return stringWidth(line.slice(0, line.indexOf(part)));
}
