import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { cliSandbox, PROGRAM } from "../../support/cli-sandbox.ts";
import { expectNoOverlap } from "../../support/nested-runs.ts";

const sandbox = cliSandbox();
const holdfast = `${process.execPath} ${PROGRAM}`;

/** Runs a script under a key. */
const runNested = (flags: readonly string[], script: string, env = {}) =>
  sandbox.run(["run", ...flags, "--", "sh", "-c", script], { env });

test.concurrent("a nested run of the same key joins it, with the same token, and so does one within that", async () => {
  const inner = `${holdfast} run k0 -- sh -c 'echo "$HOLDFAST_TOKEN"'`;
  const { code, out, err } = await runNested(
    ["k0"],
    `echo "$HOLDFAST_TOKEN"; ${holdfast} run k0 -- sh -c '${inner.replaceAll("'", `'\\''`)}'; ${inner}`,
  );
  const [first, ...others] = out.trim().split("\n");
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(others).toEqual([first, first]);
});

test.concurrent("a nested run of another key claims it, and a run of the first key within that still joins", async () => {
  const script = `${holdfast} run other -- ${holdfast} run k1 -- sh -c 'echo "$HOLDFAST_KEY" in "$0"' two`;
  const { code, out } = await runNested(["k1"], script);
  expect({ code, out }).toEqual({ code: 0, out: "k1 in two\n" });
});

test.concurrent("a nested run of several keys joins the held ones and claims the rest", async () => {
  const { code, out } = await runNested(
    ["both-a"],
    `${holdfast} run both-a both-b -- sh -c 'echo "$HOLDFAST_KEY"; ${holdfast} ls both | wc -l'`,
  );
  // two holders and the heading
  expect({ code, out: out.replaceAll(" ", "") }).toEqual({ code: 0, out: "both-a\nboth-b\n3\n" });
});

test.concurrent("each key of a nested run has the token of its holder", async () => {
  const { code, out } = await runNested(
    ["each-b"],
    `echo "$HOLDFAST_TOKENS"; ${holdfast} run each-a each-b -- sh -c 'echo "$HOLDFAST_TOKEN"; echo "$HOLDFAST_TOKENS"'`,
  );
  const [outer, own, ofA, ofB] = out.trim().split("\n");
  expect({ code, ofA, ofB }).toEqual({ code: 0, ofA: own, ofB: outer });
  expect(own).not.toBe(outer);
});

test.concurrent("shared inside exclusive and shared inside shared join, exclusive inside shared exits 121", async () => {
  const nested = (flags: string) => `${holdfast} run k3 ${flags} -- echo joined`;
  expect(await runNested(["k3"], nested("--shared"))).toMatchObject({ code: 0, out: "joined\n" });
  expect(await runNested(["k3", "--shared"], nested("--shared"))).toMatchObject({ code: 0, out: "joined\n" });
  expect(await runNested(["k3", "--shared"], nested(""))).toMatchObject({ code: 121, out: "" });
});

test.concurrent("the command works on the store of --url without naming it again", async () => {
  const address = `holdfast+unix:${join(sandbox.folder, "s")}`;
  const server = sandbox.start(["serve", "--listen", address, "--state", join(sandbox.folder, "state"), "--quiet"]);
  await until(() => server.out().includes("listening"), { within: 20_000, what: "the server" });
  const { code, out } = await runNested(["elsewhere", "--url", address], `${holdfast} check --json`);
  expect(code).toBe(0);
  expect(JSON.parse(out)).toMatchObject({ held: true, keys: ["elsewhere"] });
  server.process.kill("SIGTERM");
  await server.ended;
});

test.concurrent("permits never join: a run whose permits fit beside its ancestor's is granted, one that could only wait for it exits 121", async () => {
  const nested = (permits: string) => `${holdfast} run s4 --permits ${permits} --wait 3s -- echo granted`;
  expect(await runNested(["s4", "--permits", "1/2"], nested("1/2"))).toMatchObject({ code: 0, out: "granted\n" });
  expect(await runNested(["s4", "--permits", "1/2"], nested("2/2"))).toMatchObject({ code: 121, out: "" });
});

test.concurrent("the permits of all outer runs count: a run that would wait for two of them together exits 121", async () => {
  const middle = `${holdfast} run s5 --permits 2/4 -- ${holdfast} run s5 --permits 1/4 --wait 3s -- echo granted`;
  expect(await runNested(["s5", "--permits", "2/4"], middle)).toMatchObject({ code: 121, out: "" });
  expect(await runNested(["s5", "--permits", "1/4"], middle)).toMatchObject({ code: 0, out: "granted\n" });
});

test.concurrent("the reference of an ended run is not an ancestor: the key is waited for as usual", async () => {
  const old = (await runNested(["k5"], 'echo "$HOLDFAST_REFERENCE"')).out.trim();
  const busyRun = sandbox.start(["run", "k5", "--", "sh", "-c", "echo held; sleep 60"]);
  while (!busyRun.out().includes("held")) await new Promise((resolve) => setTimeout(resolve, 5));
  const { code } = await sandbox.run(["run", "k5", "--no-wait", "--", "true"], { env: { HOLDFAST_REFERENCE: old } });
  expect(code).toBe(124);
  busyRun.process.kill("SIGTERM");
  await busyRun.ended;
  expect((await sandbox.run(["run", "k5", "--no-wait", "--", "true"], { env: { HOLDFAST_REFERENCE: old } })).code).toBe(
    0,
  );
});

test.concurrent("a damaged reference in the environment is an error, not an endless wait", async () => {
  const { code, err } = await sandbox.run(["run", "k6", "--", "true"], { env: { HOLDFAST_REFERENCE: "hf1.x.y" } });
  expect(code).toBe(64);
  expect(err).toMatch(/HOLDFAST_REFERENCE.* is damaged: unset both .*; nothing was run/);
});

test.concurrent("a joined run is notified at once when the enclosing run has ended, not at its next check", async () => {
  const [log, joinedLog] = [join(sandbox.folder, "outlives"), join(sandbox.folder, "joined")];
  const inner = `${holdfast} run out --grace 100ms -- sh -c 'touch ${joinedLog}; sleep 60' >${log} 2>&1`;
  // with notifications it checks every 30 s only
  const { code } = await runNested(["out"], `${inner} & while [ ! -e ${joinedLog} ]; do sleep 0.02; done`);
  expect(code).toBe(0);
  await until(() => /lost "out" \(released\): sent TERM/.test(readFileSync(log, "utf8")), {
    within: 20_000,
    what: "the loss",
  });
});

describe.concurrent("a nested run whose wrapper is killed keeps the lock of the outer run until its command has been ended", () => {
  test.each([
    ["the same key, directly below", ["k7"], "k7", "", 137],
    ["the same key, below a shell", ["k8"], "k8", "; exit 5", 5],
    ["another key, below a shell", ["k9"], "k9-inner", "; exit 5", 5],
  ])("%s", (_, [key], innerKey, after, outerCode) =>
    expectNoOverlap(sandbox, [key as string, innerKey], after, outerCode),
  );

  test.each(["SIGKILL", "SIGSTOP"] as const)("until its command has ended, if its watchdog got %s before", (name) =>
    expectNoOverlap(sandbox, [`k11-${name}`, `k11-${name}-inner`], "; exit 5", 5, {}, name),
  );

  test("on TCP, where only the lease keeps a lock", async () => {
    const server = sandbox.start(["serve", "--listen", "holdfast://127.0.0.1:0", "--state", "none", "--first-start"]);
    await until(() => server.out().includes("\n"), { within: 20_000, what: "the server's address" });
    const url = `holdfast://${/holdfast:\/\/(\S+)/.exec(server.out())?.[1]}`;
    await expectNoOverlap(sandbox, ["k10", "k10"], "; exit 5", 5, { HOLDFAST_URL: url });
    server.process.kill("SIGTERM");
    await server.ended;
  });
});

test.concurrent("a run that joined a lease ends with it, before the next holder follows; a renewal is noticed", async () => {
  const reference = (await sandbox.run(["acquire", "leased", "--ttl", "10s"])).out.trim();
  const alive = join(sandbox.folder, "alive");
  const stubborn = `trap "" TERM; while :; do date +%s%N >${alive}.new; mv ${alive}.new ${alive}; sleep 0.02; done`;
  const env = { HOLDFAST_REFERENCE: reference };
  const joinedRun = sandbox.start(["run", "leased", "--grace", "500ms", "--", "sh", "-c", stubborn], { env });
  await until(() => existsSync(alive), { within: 20_000, what: "the command" });
  const startedAt = performance.now();
  await sandbox.run(["renew", reference]);
  const next = await sandbox.run(["run", "leased", "--", "sh", "-c", `date +%s%N; sleep 0.3; cat ${alive}`]);
  const { code, err } = await joinedRun.ended;
  expect(code).toBe(123);
  expect(err).toMatch(
    /^holdfast: losing "leased" \(the lease ends and was not renewed\): sent TERM to \d+; KILL in \d+ ms$/m,
  );
  const [granted, last] = next.out.trim().split("\n").map(BigInt);
  expect((last as bigint) < (granted as bigint), "the command was gone").toBe(true);
  // not with the lease that it had found at first
  expect(performance.now() - startedAt).toBeGreaterThan(9_500);
});
