// `holdfast dashboard`: the link, how it is opened, and what else the port serves.

import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createCredential } from "../../../src/auth/accounts-file.ts";
import { until } from "../../../src/testing/until.ts";
import type { RunningCommand } from "../../support/cli-sandbox.ts";
import { cliSandbox, PROGRAM } from "../../support/cli-sandbox.ts";
import { post, request } from "../../support/http-fixture.ts";
import { redisUnavailableReason, startRedis } from "../../support/stores/redis.ts";
import type { TmuxServer } from "../../support/tmux.ts";
import { startTmux, tmuxUnavailableReason } from "../../support/tmux.ts";

const sandbox = cliSandbox();
const LINK = /(http:\/\/127\.0\.0\.1:\d+)\/ui#start=([\w-]{43})/;
const hasTmux = tmuxUnavailableReason() === null;
let tmux: TmuxServer;

beforeAll(() => {
  tmux = startTmux(join(sandbox.folder, "tmux"));
});
afterAll(async () => {
  if (hasTmux) await tmux.close();
});

interface Link {
  readonly url: string;
  readonly start: string;
}

async function linkOf(running: RunningCommand): Promise<Link> {
  const ended = running.ended.then(({ err }) => Promise.reject(new Error(`the dashboard ended: ${err}`)));
  const found = until(() => LINK.exec(running.out()), { within: 20_000, what: "the link" });
  const [, url, start] = (await Promise.race([found, ended])) as unknown as [string, string, string];
  ended.catch(() => undefined);
  return { url, start };
}

const signIn = ({ url, start }: Link) => post(url, "/ui/session", { start }, { headers: { origin: url } });

const start = (name: string, ...args: readonly string[]): RunningCommand => {
  const store = `sqlite:${join(sandbox.folder, `${name}.db`)}`;
  return sandbox.start(["dashboard", "--http", "127.0.0.1:0", "--url", store, ...args]);
};

test.concurrent("it prints a link that works once, and serves the pages alone; TERM ends it", async () => {
  const dashboard = start("one");
  const link = await linkOf(dashboard);
  expect(dashboard.out().trim()).toBe(`${link.url}/ui#start=${link.start}`);
  const hints = /^holdfast: the locks of sqlite:.*, in a browser:\nholdfast: the link works once/;
  await until(() => hints.test(dashboard.err()), { within: 10_000, what: "the hints, on the other stream" });
  expect((await request(link.url, "/v1/locks")).status).toBe(401);
  const page = await request(link.url, "/ui/k/a%2Fb");
  expect([page.status, page.headers["content-type"]]).toEqual([200, "text/html; charset=utf-8"]);
  for (const [, path] of page.text.matchAll(/(?:src|href)="(\/ui\/assets\/[^"]+)"/g)) {
    const file = await request(link.url, path as string);
    expect([path, file.status]).toEqual([path, 200]);
  }
  expect((await signIn(link)).status).toBe(200);
  expect((await signIn(link)).status).toBe(401);
  dashboard.process.kill("SIGTERM");
  expect((await dashboard.ended).code).toBe(0);
});

test.concurrent("--json prints the link in an object; --read-only is in force", async () => {
  const dashboard = start("two", "--json", "--read-only");
  const link = await linkOf(dashboard);
  expect(JSON.parse(dashboard.out())).toEqual({
    http: link.url,
    runId: expect.any(String),
    link: `${link.url}/ui#start=${link.start}`,
  });
  const session = await signIn(link);
  const cookie = String(session.headers["set-cookie"]).replace(/;.*$/, "");
  const headers = { cookie, "holdfast-ui": session.json.secret as string };
  expect((await request(link.url, "/ui/api/overview", { headers })).json).toMatchObject({
    canRevoke: false,
    store: expect.stringContaining("sqlite:"),
  });
  const { json } = await request(link.url, "/ui/api/store", { headers });
  expect(json.checks.map(({ name }: { name: string }) => name)).toContain("reachable");
  dashboard.process.kill("SIGINT");
  expect((await dashboard.ended).code).toBe(0);
});

test.concurrent("--open: the link is in a file that only this user can read, never in an argument, and opens once", async () => {
  const folder = join(sandbox.folder, "desktop");
  mkdirSync(folder);
  const seen = join(folder, "seen");
  const program = join(folder, "xdg-open");
  writeFileSync(
    program,
    `#!/bin/sh\n{ echo "$@"; stat -c %a "$1"; cat "$1"; } > ${seen}.new && mv ${seen}.new ${seen}\n`,
  );
  chmodSync(program, 0o755);
  const store = `sqlite:${join(sandbox.folder, "three.db")}`;
  const dashboard = sandbox.start(["dashboard", "--http", "127.0.0.1:0", "--url", store, "--open"], {
    env: { PATH: `${folder}:${process.env.PATH}`, XDG_RUNTIME_DIR: folder },
  });
  const printed = await linkOf(dashboard);
  await until(() => existsSync(seen), { within: 20_000, what: "the browser" });
  const [argument = "", mode, ...html] = readFileSync(seen, "utf8").split("\n");
  expect([argument.endsWith(".html"), argument.includes("start="), mode]).toEqual([true, false, "600"]);
  const [, url, token] = LINK.exec(html.join("\n")) as unknown as [string, string, string];
  expect(token).not.toBe(printed.start);
  expect((await signIn({ url, start: token })).status).toBe(200);
  expect((await signIn(printed)).status).toBe(200);
  dashboard.process.kill("SIGTERM");
  await dashboard.ended;
  expect(existsSync(argument), "the file is removed").toBe(false);
});

test.skipIf(!hasTmux)("Enter prints another link", async () => {
  const terminal = await tmux.open(120, 24, { HOLDFAST_DIR: sandbox.directory });
  const store = join(sandbox.folder, "four.db");
  await terminal.type(`${process.execPath} ${PROGRAM} dashboard --http 127.0.0.1:0 --url sqlite:${store}`);
  await terminal.press("Enter");
  const links = (lines: readonly string[]): number => lines.filter((line) => LINK.test(line)).length;
  await terminal.shows((lines) => links(lines) === 1);
  await terminal.shows(/press Enter for another one/);
  await terminal.press("Enter");
  const lines = await terminal.shows((shown) => links(shown) === 2);
  const found = lines.flatMap((line) => LINK.exec(line) ?? []);
  expect(new Set(found).size).toBeGreaterThan(3);
  await terminal.press("C-c");
  await terminal.shows(/stopping: received SIGINT/);
});

test.skipIf(!hasTmux)("as a background job it goes on, although it could read from the terminal", async () => {
  const terminal = await tmux.open(120, 24, { HOLDFAST_DIR: sandbox.directory });
  const store = join(sandbox.folder, "six.db");
  await terminal.type(`${process.execPath} ${PROGRAM} dashboard --http 127.0.0.1:0 --url sqlite:${store} &`);
  await terminal.press("Enter");
  const lines = await terminal.shows((shown) => shown.some((line) => LINK.test(line)));
  const [, url] = LINK.exec(lines.join("\n")) as unknown as [string, string];
  // what is typed is for the shell
  await terminal.press("Enter");
  await terminal.type("jobs");
  await terminal.press("Enter");
  await terminal.shows(/\[1\]\+? +Running/);
  expect((await request(url, "/health")).status).toBe(200);
  await terminal.type("kill %1");
  await terminal.press("Enter");
  await terminal.shows(/stopping: received SIGTERM/);
});

test.concurrent("--open without the folder of a session, and without a program that opens: the dashboard goes on", async () => {
  const store = `sqlite:${join(sandbox.folder, "seven.db")}`;
  const dashboard = sandbox.start(["dashboard", "--http", "127.0.0.1:0", "--url", store, "--open"], {
    env: { PATH: "/nonexistent", XDG_RUNTIME_DIR: join(sandbox.folder, "absent") },
  });
  const link = await linkOf(dashboard);
  await until(() => /could not be opened/.test(dashboard.err()), { within: 20_000, what: "the message" });
  expect((await signIn(link)).status).toBe(200);
  dashboard.process.kill("SIGTERM");
  expect((await dashboard.ended).code).toBe(0);
});

test.concurrent("--open where no file can be written: the dashboard goes on, and says why", async () => {
  const store = `sqlite:${join(sandbox.folder, "eight.db")}`;
  const dashboard = sandbox.start(["dashboard", "--http", "127.0.0.1:0", "--url", store, "--open"], {
    env: { XDG_RUNTIME_DIR: "/proc" },
  });
  const link = await linkOf(dashboard);
  await until(() => /could not be opened/.test(dashboard.err()), { within: 20_000, what: "the message" });
  expect((await signIn(link)).status).toBe(200);
  dashboard.process.kill("SIGTERM");
  expect((await dashboard.ended).code).toBe(0);
});

test.concurrent("with accounts the link has no token, and the API is that of a gateway", async () => {
  const { credential, hash } = createCredential();
  const accounts = join(sandbox.folder, "accounts.json");
  const account = { name: "ana", hashes: [hash], rules: [{ prefix: "", rights: ["inspect"] }] };
  writeFileSync(accounts, JSON.stringify({ version: 1, accounts: [account] }), { mode: 0o600 });
  const dashboard = start("five", "--credentials", accounts);
  const [, url] = await until(() => /^(http:.*)\/ui$/m.exec(dashboard.out()), { within: 20_000, what: "the link" });
  expect((await request(url as string, "/v1/locks", { credential })).status).toBe(200);
  const body = { credential };
  expect((await post(url as string, "/ui/session", body, { headers: { origin: url as string } })).status).toBe(200);
  dashboard.process.kill("SIGTERM");
  await dashboard.ended;
});

test.skipIf(redisUnavailableReason() !== null)(
  "the password of the url, claim ids and references appear nowhere",
  async () => {
    const password = "pass-of-the-store-7f3a";
    const server = await startRedis(["--requirepass", password]);
    try {
      const url = server.url.replace("redis://", `redis://:${password}@`);
      const dashboard = sandbox.start(["dashboard", "--http", "127.0.0.1:0"], { env: { HOLDFAST_URL: url } });
      const link = await linkOf(dashboard);
      const acquired = await sandbox.run(["acquire", "k"], { env: { HOLDFAST_URL: url } });
      const reference = acquired.out.trim();
      const session = await signIn(link);
      const cookie = String(session.headers["set-cookie"]).replace(/;.*$/, "");
      const headers = { cookie, "holdfast-ui": session.json.secret as string };
      const answers = await Promise.all(
        ["overview", "claims?prefix=", "claims?key=k", "history", "store"].map((path) =>
          request(link.url, `/ui/api/${path}`, { headers }),
        ),
      );
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
      const text = [...answers.map((answer) => answer.text), dashboard.out(), dashboard.err()].join("\n");
      expect(text).not.toContain(password);
      // a reference contains the ids of its claims
      const [, body = ""] = reference.split(".");
      const ids =
        Buffer.from(body, "base64url")
          .toString()
          .match(/[a-z2-7]{26}/g) ?? [];
      expect(ids.length).toBeGreaterThan(0);
      for (const secret of [reference, body, ...ids]) expect(text).not.toContain(secret);
      dashboard.process.kill("SIGTERM");
      await dashboard.ended;
      await sandbox.run(["release"], { env: { HOLDFAST_URL: url, HOLDFAST_REFERENCE: reference } });
    } finally {
      await server.stop();
    }
  },
);

test.concurrent("errors: the store cannot be reached, and bad settings", async () => {
  const absent = await sandbox.run(["dashboard", "--http", "127.0.0.1:0", "--url", "redis://127.0.0.1:1"]);
  expect([absent.code, absent.out]).toEqual([69, ""]);
  const bad = await sandbox.run(["dashboard", "--http", "nonsense", "--url", "memory:"]);
  expect(bad.code).toBe(64);
  expect(bad.err).toMatch(/--http/);
  expect(bad.err).toMatch(/--url/);
  const open = await sandbox.run(["dashboard", "--http", "0.0.0.0:0", "--url", "sqlite:x.db"]);
  expect(open.code).toBe(64);
});
