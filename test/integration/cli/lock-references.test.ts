import { describe, expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { cliSandbox, PROGRAM } from "../../support/cli-sandbox.ts";

const sandbox = cliSandbox();

async function acquireReference(key: string, ...flags: string[]): Promise<string> {
  const { code, out } = await sandbox.run(["acquire", key, ...flags]);
  expect(code).toBe(0);
  expect(out).toMatch(/^hf1\.[\w-]+\.[\w-]+\n$/);
  return out.trim();
}

describe.concurrent("a lock carried between processes", () => {
  test("acquire, check, renew and release are separate processes with one lock", async () => {
    const reference = await acquireReference("carried");
    expect((await sandbox.run(["run", "carried", "--no-wait", "--", "true"])).code).toBe(124);
    const check = await sandbox.run(["check", reference]);
    expect(check).toMatchObject({ code: 0, out: "" });
    expect(check.err).toMatch(/^holdfast: "carried" is held for another \d+ s, token \d+\n$/);
    expect((await sandbox.run(["renew", reference])).err).toBe('holdfast: renewed "carried": held for another 30 s\n');
    expect((await sandbox.run(["check", reference])).code).toBe(0);
    expect((await sandbox.run(["release", reference])).err).toBe('holdfast: released "carried"\n');
    expect((await sandbox.run(["run", "carried", "--no-wait", "--", "true"])).code).toBe(0);
  });

  test("a store whose locks end with the command gives no reference, since it would be useless", async () => {
    const { code, out, err } = await sandbox.run(["acquire", "gone", "--url", "memory:"]);
    expect({ code, out }).toEqual({ code: 64, out: "" });
    expect(err).toContain("memory: ends with `holdfast acquire`, and so would the lock");
  });

  test("the reference can be an argument, in HOLDFAST_REFERENCE or on standard input", async () => {
    const reference = await acquireReference("given");
    const results = await Promise.all([
      sandbox.run(["check", reference]),
      sandbox.run(["check"], { env: { HOLDFAST_REFERENCE: reference } }),
      sandbox.run(["check"], { input: `${reference}\n` }),
      sandbox.run(["check", "-"], { input: reference, env: { HOLDFAST_REFERENCE: "hf1.wrong" } }),
    ]);
    expect(results.map(({ code }) => code)).toEqual([0, 0, 0, 0]);
    expect((await sandbox.run(["check"], { input: "" })).code).toBe(64);
    await sandbox.run(["release", reference]);
  });

  test("with --json every command prints one object", async () => {
    const { out } = await sandbox.run(["acquire", "as json", "--ttl", "1m", "--json"]);
    const report = JSON.parse(out) as { reference: string; token: string };
    expect(report).toMatchObject({ keys: ["as json"], ttlMs: 60_000 });
    const runJson = async (name: string) => JSON.parse((await sandbox.run([name, report.reference, "--json"])).out);
    expect(await runJson("check")).toMatchObject({ held: true, keys: ["as json"], token: report.token });
    expect(await runJson("renew")).toMatchObject({ renewed: true, keys: ["as json"], ttlMs: 60_000 });
    expect(await runJson("release")).toMatchObject({ released: true, keys: ["as json"] });
    const { code, out: emptyOut, err } = await sandbox.run(["release", report.reference, "--json"]);
    expect({ code, nothing: emptyOut }).toEqual({ code: 123, nothing: "" });
    expect(JSON.parse(err)).toMatchObject({ error: "lost", code: 123, reason: "released", keys: ["as json"] });
  });

  test("renewing restarts the lease", async () => {
    const reference = await acquireReference("renewed", "--ttl", "1m");
    const readRemainingMs = async () =>
      JSON.parse((await sandbox.run(["check", reference, "--json"])).out).remainingMs as number;
    await until(async () => (await readRemainingMs()) < 59_500, {
      within: 20_000,
      what: "a part of the lease to pass",
    });
    const renewedAt = performance.now();
    expect((await sandbox.run(["renew", reference])).code).toBe(0);
    expect((await readRemainingMs()) + performance.now() - renewedAt).toBeGreaterThanOrEqual(60_000);
    await sandbox.run(["release", reference]);
  });
});

describe.concurrent("a refusal has its reason and exit code 123, and changes nothing", () => {
  test("a repeated release: released", async () => {
    const reference = await acquireReference("twice");
    expect((await sandbox.run(["release", reference])).code).toBe(0);
    for (const name of ["release", "renew", "check"]) {
      const { code, err } = await sandbox.run([name, reference]);
      expect(code).toBe(123);
      expect(err).toBe('holdfast: "twice" is not held by this reference: it was released; nothing was changed\n');
    }
  });

  test("a stale reference: expired, and the next holder keeps the lock", async () => {
    const reference = await acquireReference("stale", "--ttl", "1s");
    const next = sandbox.start(["run", "stale", "--", "sh", "-c", "echo held; sleep 60"]);
    await until(() => next.out().includes("held"), { within: 20_000, what: "the next holder" });
    // the store remembers the end reason for one lease, afterwards it does not know the reference
    const { code, err } = await sandbox.run(["release", reference]);
    expect(code).toBe(123);
    expect(err).toMatch(
      /is not held by this reference: (its lease ended before a renewal succeeded|the store does not know it.*); nothing was changed\n$/,
    );
    expect((await sandbox.run(["run", "stale", "--no-wait", "--", "true"])).code).toBe(124);
    next.process.kill("SIGTERM");
    await next.ended;
  });

  test("an altered, cut or invented reference: malformed", async () => {
    const reference = await acquireReference("altered");
    const [version, body = "", sum] = reference.split(".");
    const flipped = body.startsWith("e") ? `f${body.slice(1)}` : `e${body.slice(1)}`;
    for (const malformed of [
      `${version}.${flipped}.${sum}`,
      reference.slice(0, -3),
      "nonsense",
      `hf9.${body}.${sum}`,
    ]) {
      const { code, err } = await sandbox.run(["release", malformed]);
      expect(code).toBe(123);
      expect(err).toMatch(/^holdfast: reference (is damaged|must begin with).*; nothing was changed\n$/);
      expect(err).not.toContain(body.slice(0, 20));
    }
    expect((await sandbox.run(["check", reference])).code).toBe(0);
    await sandbox.run(["release", reference]);
  });

  test("a reference of another store: unknown", async () => {
    const otherEnv = { HOLDFAST_DIR: `${sandbox.directory}2` };
    const reference = await acquireReference("foreign");
    const { code, err } = await sandbox.run(["release", reference], { env: otherEnv });
    expect(code).toBe(123);
    expect(err).toMatch(/the store does not know it/);
    expect((await sandbox.run(["check", reference])).code).toBe(0);
  });
});

test.concurrent("a revoked lock is released by its reference, and waiters need not wait for the end of its lease", async () => {
  const reference = await acquireReference("revoked", "--ttl", "10m");
  const { out } = await sandbox.run(["ls", "revoked", "--json"]);
  const { token } = JSON.parse(out) as { token: string };
  expect((await sandbox.run(["revoke", "revoked", "--token", token])).code).toBe(0);
  // the active holder is notified, and keeps its entry until it has cleaned up
  const renew = await sandbox.run(["renew", reference]);
  expect(renew.err).toBe('holdfast: "revoked" is not held by this reference: it was revoked; nothing was changed\n');
  expect((await sandbox.run(["run", "revoked", "--no-wait", "--", "true"])).code).toBe(124);
  const release = await sandbox.run(["release", reference]);
  expect(release.code).toBe(123);
  expect(release.err).toBe('holdfast: released "revoked", but it was not held any more: it was revoked\n');
  expect((await sandbox.run(["run", "revoked", "--no-wait", "--", "true"])).code).toBe(0);
});

describe.concurrent("the reference of a run", () => {
  test("after a release by it, the run is notified at once, and its command ended", async () => {
    const script = `${process.execPath} dist/cli/main.js release && sleep 100`;
    const started = performance.now();
    const { code, err } = await sandbox.run(["run", "given away", "--ttl", "2m", "--", "sh", "-c", script]);
    expect(code).toBe(123);
    expect(err).toMatch(/^holdfast: lost "given away" \(released\): sent TERM to \d+; KILL in 5 s\n/m);
    // by itself it asks after forty seconds
    expect(performance.now() - started).toBeLessThan(25_000);
  });

  test("check within a run reports that the lock is held, and that it lasts until its session ends", async () => {
    const { out } = await sandbox.run(["run", "own", "--", process.execPath, "dist/cli/main.js", "check", "--json"]);
    expect(JSON.parse(out)).toMatchObject({ held: true, keys: ["own"], remainingMs: null });
  });

  test("renewing it from within changes nothing about it", async () => {
    const script = `${process.execPath} dist/cli/main.js renew && ${process.execPath} dist/cli/main.js check && echo fine`;
    expect(await sandbox.run(["run", "own", "--", "sh", "-c", script])).toMatchObject({ code: 0, out: "fine\n" });
    expect(await sandbox.run(["run", "own", "--ttl", "5s", "--", "sh", "-c", script])).toMatchObject({
      code: 0,
      out: "fine\n",
    });
  });
});

test.concurrent("acquire waits, gives up and reports the holder, as run does", async () => {
  const reference = await acquireReference("contended");
  const lateRun = await sandbox.run(["acquire", "contended", "--wait", "100ms"]);
  expect(lateRun.code).toBe(124);
  expect(lateRun.err).toMatch(
    /^holdfast: waited 100 ms for "contended": held by \S+@\S+ pid \d+ \(holdfast acquire\) for/,
  );
  expect((await sandbox.run(["acquire", "contended", "--no-wait", "--conflict-exit-code", "3"])).code).toBe(3);
  expect((await sandbox.run(["acquire", "contended", "--ttl", "session"])).code).toBe(64);
  for (const code of ["abc", "256", "-1", "1.5", ""]) {
    const { err, ...failure } = await sandbox.run([
      "acquire",
      "contended",
      "--no-wait",
      `--conflict-exit-code=${code}`,
    ]);
    expect(failure.code, code).toBe(64);
    expect(err).toMatch(/^holdfast: --conflict-exit-code must be a number from 0 to 255, not /);
  }
  await sandbox.run(["release", reference]);
});

test.concurrent("one reference carries several keys and permits", async () => {
  const reference = await acquireReference("x", "y");
  expect((await sandbox.run(["run", "y", "--no-wait", "--", "true"])).code).toBe(124);
  expect((await sandbox.run(["release", reference])).code).toBe(0);
  const permit = await acquireReference("z", "--permits", "1/2");
  expect((await sandbox.run(["run", "z", "--permits", "1/2", "--no-wait", "--", "true"])).code).toBe(0);
  expect((await sandbox.run(["release", permit])).code).toBe(0);
});

test
  .runIf(process.platform === "linux")
  .concurrent(
    "a reference that could not be written, to a full disk or a closed pipe, leaves no lock behind",
    async () => {
      for (const redirection of [">/dev/full", "| exec 0<&-"]) {
        // the reader closes the pipe before the lock is granted: it was busy
        const first = await acquireReference("undelivered");
        const script = `set -o pipefail; "$0" "$1" acquire undelivered --ttl 10m ${redirection}`;
        const second = sandbox.startProgram(["bash", "-c", script, process.execPath, PROGRAM]);
        await sandbox.waitForQueue("undelivered");
        await sandbox.run(["release", first]);
        const { code, err } = await second.ended;
        expect(code).toBe(74);
        expect(err).toMatch(/^holdfast: standard output cannot be written: .*; "undelivered" was released\n$/m);
        expect((await sandbox.run(["run", "undelivered", "--no-wait", "--", "true"])).code).toBe(0);
      }
    },
  );
