import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { toCommandError } from "../../../src/cli/errors.ts";
import { until } from "../../../src/testing/until.ts";
import { cliSandbox, isProcessAlive, PROGRAM } from "../../support/cli-sandbox.ts";

const sandbox = cliSandbox();
const messageStartingWith = ["run", "defect", "--quiet", "--", "sh", "-c", "echo $$; exec sleep 60"] as const;

/** Holds a key until it is ended. */
async function startHolder(key: string, ...flags: string[]) {
  const run = sandbox.start(["run", key, ...flags, "--", "sh", "-c", "echo held; read line || sleep 60"]);
  await until(() => run.out().includes("held"), { within: 20_000, what: `the holder of ${key}` });
  return run;
}

describe.concurrent("exit codes of run", () => {
  test.each([0, 1, 7, 255])("the command's own code %i is passed on", async (code) => {
    expect((await sandbox.run(["run", "own", "--", "sh", "-c", `exit ${code}`])).code).toBe(code);
  });

  test.each([
    ["TERM", 143],
    ["KILL", 137],
    ["INT", 130],
  ])("128+n when SIG%s ended the command", async (signal, code) => {
    expect((await sandbox.run(["run", "signalled", "--", "sh", "-c", `kill -${signal} $$`])).code).toBe(code);
  });

  test("124 when the lock was not granted in time, with its holder; --conflict-exit-code changes the code", async () => {
    const first = await startHolder("slow");
    const lateRun = await sandbox.run(["run", "slow", "--wait", "300ms", "--", "true"]);
    expect(lateRun.code).toBe(124);
    expect(lateRun.err).toMatch(
      /^holdfast: waited 300 ms for "slow": held by \S+@\S+ pid \d+ \(sh\) for \d+ m?s, 1 ahead of you; nothing was run\n$/,
    );
    expect(
      (await sandbox.run(["run", "slow", "--wait", "300ms", "--conflict-exit-code", "0", "--", "true"])).code,
    ).toBe(0);
    first.process.kill("SIGTERM");
    await first.ended;
  });

  test("124 at once with --no-wait when the lock is busy, or the code of --conflict-exit-code", async () => {
    const first = await startHolder("busy");
    const second = await sandbox.run(["run", "busy", "--no-wait", "--", "true"]);
    expect(second.code).toBe(124);
    expect(second.err).toMatch(/^holdfast: "busy" is busy: held by \S+@\S+ pid \d+ \(sh\) for .*; nothing was run\n$/);
    const both = await sandbox.run(["run", "busy", "a-free-one", "--no-wait", "--", "true"]);
    expect(both.err).toMatch(/^holdfast: one of "busy" and "a-free-one" is busy: held by \S+@\S+ pid \d+ \(sh\) for/);
    expect((await sandbox.run(["run", "busy", "--no-wait", "--conflict-exit-code", "9", "--", "true"])).code).toBe(9);
    first.process.kill("SIGTERM");
    await first.ended;
  });

  test("70 for an internal error, reported as such, and the command does not continue without the lock", async () => {
    const script = 'process.on("SIGWINCH", () => { throw new RangeError("boom") })';
    const run = sandbox.startProgram([
      process.execPath,
      "--import",
      `data:text/javascript,${script}`,
      PROGRAM,
      ...messageStartingWith,
    ]);
    await until(() => run.out().includes("\n"), { within: 20_000, what: "the command" });
    run.process.kill("SIGWINCH");
    const { code, out, err } = await run.ended;
    expect(code).toBe(70);
    expect(err).toMatch(/^holdfast: internal error \(please report it\): boom\n/);
    await until(() => !isProcessAlive(Number(out)), { within: 20_000, what: "the command's end" });
  });

  test("123 when the lock was lost while the command was running", async () => {
    const script = 'echo "$HOLDFAST_REFERENCE"; sleep 60';
    const run = sandbox.start(["run", "lost", "--ttl", "20s", "--grace", "200ms", "--", "sh", "-c", script]);
    await until(() => run.out().includes("\n"), { within: 20_000, what: "the reference" });
    await sandbox.run(["release"], { input: run.out(), env: { HOLDFAST_REFERENCE: "-" } });
    const { code, err } = await run.ended;
    expect(code).toBe(123);
    expect(err).toMatch(/^holdfast: lost "lost" \(\w+\): sent TERM to \d+; KILL in 200 ms\n/);
  });

  test("122 when --max-hold has passed", async () => {
    const { code, err } = await sandbox.run([
      "run",
      "long",
      "--max-hold",
      "300ms",
      "--grace",
      "100ms",
      "--",
      "sleep",
      "60",
    ]);
    expect(code).toBe(122);
    expect(err).toMatch(/held "[^"]+" for as long as --max-hold or the server allows/);
  });

  test("121 when a run would wait for an enclosing run, which is named", async () => {
    const nested = `${process.execPath} dist/cli/main.js run nest -- true`;
    const { code, err } = await sandbox.run(["run", "nest", "--shared", "--", "sh", "-c", nested]);
    expect(code).toBe(121);
    expect(err).toMatch(
      /^holdfast: deadlock: "nest" is already held by an outer run \(\S+@\S+ pid \d+ \(sh\), for .*\); nothing was run\n$/,
    );
  });

  test("69 when the store cannot be reached, and the command is not started", async () => {
    const { code, err, out } = await sandbox.run(["run", "k", "--url", "holdfast://127.0.0.1:1", "--", "echo", "ran"]);
    expect({ code, out }).toEqual({ code: 69, out: "" });
    expect(err).toBe("holdfast: holdfast://127.0.0.1:1 refused the connection; nothing was run\n");
  });

  test("77 when the socket's permissions refuse the user: root would not notice, so the thrown error is checked", () => {
    const denied = Object.assign(new Error("connect EACCES /run/s"), { code: "EACCES" });
    for (const error of [denied, Object.assign(new Error("", { cause: denied }), { code: "LOCK_STORE_FAILED" })]) {
      const { code, message } = toCommandError(error, "holdfast+unix:/run/s");
      expect([code, message]).toEqual([77, "holdfast+unix:/run/s cannot be opened: permission denied"]);
    }
    const cause = Object.assign(new Error("EACCES"), { code: "EACCES", path: "/dir/election" });
    const { message } = toCommandError(
      Object.assign(new Error("", { cause }), { code: "LOCK_STORE_FAILED" }),
      "the server",
    );
    expect(message).toBe("the server cannot be opened: permission denied (/dir/election)");
  });

  test("77 when the user's directory is refused", async () => {
    const { code, err } = await sandbox.run(["run", "k", "--", "true"], { env: { HOLDFAST_DIR: "/tmp" } });
    expect(code).toBe(77);
    expect(err).toMatch(/^holdfast: the directory \/tmp .*refusing to use it/);
  });

  test.each([
    [["run"], /^holdfast: no key given; for example: holdfast run /],
    [["run", "k", "ls"], /no command given; .* holdfast run k -- ls/],
    [["run", "k", "--wiat", "5s", "--", "true"], /unknown option '--wiat'; did you mean --wait\?/],
    [["run", "k", "--store", "x", "--", "true"], /unknown option '--store'; use --url to name the store$/m],
    [["serve", "--store", "x"], /unknown option '--store'; holdfast gateway serves another store$/m],
    [["serve", "--store", "x"], /unknown option '--store'; holdfast gateway serves another store$/m],
    [["run", "k", "--wait", "5x", "--", "true"], /--wait must be a duration such as .*, not "5x"/],
    [["run", "k", "--ttl", "0.05", "--", "true"], /--ttl must be from 100ms to 36500d .* not "0.05"/],
    [["run", "k", "-n", "--wait", "3s", "--", "true"], /--no-wait and --wait cannot be combined/],
    [["acquire", "k", "--wait", "3s", "--no-wait"], /--no-wait and --wait cannot be combined/],
    [["foo"], /^holdfast: unknown command 'foo'; see holdfast --help$/m],
    [["-v"], /^holdfast: unknown option '-v'; see holdfast --help$/m],
    [["ls", "--colour"], /^holdfast: unknown option '--colour'; see holdfast ls --help$/m],
    [["run", "k", "--url", "foo", "--", "true"], /url must be a url, for example redis:\/\/host:6379, not "foo"/],
    [["run", "k", "--max-hold", "0", "--", "true"], /--max-hold must be longer than 0/],
    [["run", "k\nl", "--", "true"], /key must not contain control characters/],
    [["run", "k", "--url", "http://x", "--", "true"], /url must begin with one of/],
    [["run", "k", "--url", "", "--", "true"], /url must be a url, for example .*, not ""; nothing was run/],
    [["run", "k", "--url", "holdfast+unix:socket", "--", "true"], /url must have the socket's absolute path/],
    [["show"], /no key given; for example: holdfast show nightly-report$/m],
    [["rnu"], /unknown command 'rnu'; did you mean run\?/],
    [["run", "k", "--wait"], /^holdfast: --wait <duration>: the value is missing\n$/],
    [["ls", "a", "b"], /^holdfast: too many arguments for ls: at most 1, not 2\n$/],
    [["completion"], /^holdfast: the argument <shell> is missing; see holdfast completion --help\n$/],
    [["credential", "check"], /^holdfast: the argument <file> is missing; see holdfast credential --help\n$/],
  ])("64 for wrong usage: %j", async (args, message) => {
    const { code, err, out } = await sandbox.run(args);
    expect({ code, out }).toEqual({ code: 64, out: "" });
    expect(err).toMatch(/^holdfast: /);
    expect(err).toMatch(message);
  });

  test("64 and its help for a command that only has subcommands", async () => {
    const { code, out, err } = await sandbox.run(["credential"]);
    expect({ code, out }).toEqual({ code: 64, out: "" });
    expect(err).toMatch(/^Usage: holdfast credential .*errors$/ms);
    expect(err).not.toMatch(/^holdfast: /m);
  });

  test.runIf(process.platform === "linux")(
    "64 for bytes that are not UTF-8: the command would get different bytes",
    async () => {
      const script = (bytes: string) => `"$0" "$1" run bytes -- printf %s "$(printf '${bytes}')"`;
      const run = (bytes: string) => sandbox.startProgram(["sh", "-c", script(bytes), process.execPath, PROGRAM]).ended;
      const { code, out, err } = await run("caf\\351");
      expect({ code, out }).toEqual({ code: 64, out: "" });
      expect(err).toBe("holdfast: argument 6 is not UTF-8 and would reach the command altered; nothing was run\n");
      expect(await run("\\357\\277\\275")).toMatchObject({ code: 0, out: "\ufffd" });
    },
  );

  test.runIf(process.platform === "linux")("74 when the results cannot be written", async () => {
    const { code, err } = await sandbox.startProgram([
      "sh",
      "-c",
      '"$0" "$1" --version >/dev/full',
      process.execPath,
      PROGRAM,
    ]).ended;
    expect({ code, err }).toEqual({
      code: 74,
      err: "holdfast: standard output cannot be written: ENOSPC: no space left on device, write\n",
    });
  });

  test("126 for a file that cannot be executed and 127 for a missing one, before any wait", async () => {
    const file = join(sandbox.folder, "plain");
    writeFileSync(file, "text", { mode: 0o644 });
    const first = await startHolder("taken");
    const results = await Promise.all([
      sandbox.run(["run", "taken", "--", file]),
      sandbox.run(["run", "taken", "--", sandbox.folder]),
      sandbox.run(["run", "taken", "--", "no-such-program"]),
      sandbox.run(["run", "taken", "--", ""]),
      sandbox.run(["run", "taken", "--", "./no/such"]),
    ]);
    expect(results.map(({ code }) => code)).toEqual([126, 126, 127, 127, 127]);
    expect(results[2]?.err).toBe('holdfast: "no-such-program" was not found; nothing was run\n');
    first.process.kill("SIGTERM");
    await first.ended;
  });

  test("a script whose interpreter is missing gives 127", async () => {
    const file = join(sandbox.folder, "script");
    writeFileSync(file, "#!/no/such/interpreter\n", { mode: 0o755 });
    expect((await sandbox.run(["run", "interpreted", "--", file])).code).toBe(127);
    // and the lock is free again
    expect((await sandbox.run(["run", "interpreted", "--no-wait", "--", "true"])).code).toBe(0);
  });

  test("with --json the cause is on stderr as one line of JSON", async () => {
    const first = await startHolder("json");
    const { err } = await sandbox.run(["run", "json", "--json", "--wait", "100ms", "--", "true"]);
    expect(err.endsWith("}\n") && err.trim().includes("\n")).toBe(false);
    const report = JSON.parse(err) as Record<string, unknown>;
    expect(report).toMatchObject({ error: "timeout", code: 124, keys: ["json"], ahead: 1 });
    expect(report.holder).toMatch(/pid \d+ \(sh\)$/);
    first.process.kill("SIGTERM");
    await first.ended;
  });

  test("with --quiet nothing is printed, and the code is the same", async () => {
    const { code, err } = await sandbox.run(["run", "k", "--quiet", "--", "no-such-program"]);
    expect({ code, err }).toEqual({ code: 127, err: "" });
  });

  test("a signal ends the wait with 128+n, and no queue entry is left", async () => {
    const first = await startHolder("waited");
    const second = sandbox.start(["run", "waited", "--", "true"]);
    await sandbox.waitForQueue("waited");
    second.process.kill("SIGTERM");
    expect((await second.ended).signal).toBe("SIGTERM");
    expect((await sandbox.run(["ls", "waited"])).out).not.toContain("waiting");
    expect(isProcessAlive(first.pid)).toBe(true);
    first.process.kill("SIGTERM");
    await first.ended;
  });
});
