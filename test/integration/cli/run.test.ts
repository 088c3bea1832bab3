import { existsSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { cliSandbox, PROGRAM } from "../../support/cli-sandbox.ts";

const sandbox = cliSandbox();

/** Holds a key until its file appears. */
async function startHolder(key: string, ...flags: string[]) {
  const stop = join(sandbox.folder, `stop-${key.replace(/\W/g, "_")}-${Math.random()}`);
  const script = `echo held; while [ ! -e "${stop}" ]; do sleep 0.02; done`;
  const run = sandbox.start(["run", key, ...flags, "--", "sh", "-c", script]);
  await until(() => run.out().includes("held"), { within: 20_000, what: `the holder of ${key}` });
  return {
    ...run,
    async stop() {
      writeFileSync(stop, "");
      return run.ended;
    },
  };
}

describe.concurrent("the command's environment", () => {
  test("HOLDFAST_KEY, HOLDFAST_TOKEN and HOLDFAST_REFERENCE are exported, and the token rises", async () => {
    const script = 'printf "%s\\n" "$HOLDFAST_KEY" "$HOLDFAST_TOKEN" "$HOLDFAST_REFERENCE"';
    const [first, second] = [
      (await sandbox.run(["run", "exported", "--", "sh", "-c", script])).out.split("\n"),
      (await sandbox.run(["run", "exported", "--", "sh", "-c", script])).out.split("\n"),
    ];
    expect(first[0]).toBe("exported");
    expect(first[2]).toMatch(/^hf1\./);
    expect(BigInt(second[1] ?? "") > BigInt(first[1] ?? "")).toBe(true);
  });

  test("several keys are in HOLDFAST_KEY one a line, each once and in order", async () => {
    const { out } = await sandbox.run(["run", "b", "a key", "b", "--", "sh", "-c", 'echo "$HOLDFAST_KEY"']);
    expect(out).toBe("a key\nb\n");
  });

  test("credentials are removed from the command's environment", async () => {
    const env = { HOLDFAST_CREDENTIAL: "s3cret", HOLDFAST_CREDENTIAL_FILE: "/s3cret", OTHER: "kept" };
    const { out } = await sandbox.run(["run", "secrets", "--", "env"], { env });
    expect(out).not.toContain("s3cret");
    expect(out).toContain("OTHER=kept");
  });

  test("input, output, arguments and working directory are the same as without holdfast", async () => {
    const script = 'cat; printf "<%s>" "$@"; pwd; echo error >&2';
    const args = ["run", "plain", "--", "sh", "-c", script, "sh", "--wait", "a b", "", "--", "*"];
    const { out, err } = await sandbox.run(args, { input: "in\n", cwd: sandbox.folder });
    expect(out).toBe(`in\n<--wait><a b><><--><*>${sandbox.folder}\n`);
    expect(err).toBe("error\n");
  });

  test("out=$(holdfast run ...) returns at once although it started the server, which keeps no descriptor of its starter", async () => {
    const freshFolder = join(sandbox.folder, "fresh");
    const script = `exec 7>"${sandbox.folder}/seven" 40>"${sandbox.folder}/forty"; out=$(${process.execPath} ${PROGRAM} run k -- echo hi 2>&1); echo "<$out>"`;
    const started = performance.now();
    const { out } = await sandbox.startProgram(["bash", "-c", script], { env: { HOLDFAST_DIR: freshFolder } }).ended;
    expect(out).toBe("<hi>\n");
    // a server that kept the pipe would block for ten minutes
    expect(performance.now() - started).toBeLessThan(30_000);
    const pid = Number(/ (\d+) listening/.exec(readFileSync(join(freshFolder, "server.log"), "utf8"))?.[1]);
    const open = readdirSync(`/proc/${pid}/fd`).map((name) => readLink(`/proc/${pid}/fd/${name}`));
    const allowedDescriptor = /^(pipe|socket|anon_inode):|^\/dev\/null$/;
    const files = open
      .filter((target) => target !== "" && !allowedDescriptor.test(target))
      .map((target) => target.replace(`${freshFolder}/`, ""));
    // its log, its locks and its state, and nothing else
    expect([...new Set(files)].every((file) => /^(server\.log|election|socket\.lock|state(\/.*)?)$/.test(file))).toBe(
      true,
    );
    expect(readFileSync(`/proc/${pid}/stat`, "latin1").split(") ")[1]?.split(" ")[3]).not.toBe(
      readFileSync("/proc/self/stat", "latin1").split(") ")[1]?.split(" ")[3],
    );
    expect(readlinkSync(`/proc/${pid}/cwd`)).toBe("/");
    const names = readFileSync(`/proc/${pid}/environ`, "latin1").match(/^[^=]+|(?<=\0)[^=]+/g);
    // the intermediate shell adds PWD
    expect(names?.filter((name) => name !== "PWD").sort()).toEqual(["HOLDFAST_DIR", "PATH"]);
  });

  test("a run with an empty environment excludes one with a full one", async () => {
    // without HOLDFAST_DIR the password database gives the user's directory; here the one variable replaces it
    const first = await startHolder("empty");
    const args = ["env", "-i", `HOLDFAST_DIR=${sandbox.directory}`, process.execPath, PROGRAM] as const;
    const { code } = await sandbox.startProgram([...args, "run", "empty", "--no-wait", "--", "/bin/true"]).ended;
    expect(code).toBe(124);
    await first.stop();
  });
});

function readLink(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    // closed since it was listed
    return "";
  }
}

describe.concurrent("which runs may run at the same time", () => {
  test("two runs of one key take turns in order of arrival", async () => {
    const log = join(sandbox.folder, "turns");
    const first = await startHolder("turns");
    const second = sandbox.start(["run", "turns", "--", "sh", "-c", `echo second >> ${log}`]);
    await sandbox.waitForQueue("turns", 1);
    const third = sandbox.start(["run", "turns", "--", "sh", "-c", `echo third >> ${log}`]);
    await sandbox.waitForQueue("turns", 2);
    expect(existsSync(log)).toBe(false);
    await first.stop();
    await Promise.all([second.ended, third.ended]);
    expect(readFileSync(log, "utf8")).toBe("second\nthird\n");
  });

  test("--shared runs overlap, an exclusive one waits for them", async () => {
    const readers = [await startHolder("shared", "--shared"), await startHolder("shared", "--shared")];
    expect((await sandbox.run(["run", "shared", "--no-wait", "--", "true"])).code).toBe(124);
    for (const reader of readers) await reader.stop();
    expect((await sandbox.run(["run", "shared", "--no-wait", "--", "true"])).code).toBe(0);
  });

  test("the short flags have the meaning they have in flock(1)", async () => {
    const reader = await startHolder("flags", "-s");
    expect((await sandbox.run(["run", "-s", "-n", "flags", "--", "true"])).code).toBe(0);
    expect((await sandbox.run(["run", "-nE9", "flags", "--", "true"])).code).toBe(9);
    const result = await sandbox.run(["run", "-w", "0.2", "-E", "9", "flags", "--", "true"]);
    expect([result.code, result.err]).toEqual([9, expect.stringContaining('waited 200 ms for "flags"')]);
    await reader.stop();
    expect((await sandbox.run(["run", "-w10", "flags", "--", "true"])).code).toBe(0);
  });

  test("--permits 1/2 lets two run and makes the third wait", async () => {
    const holders = [await startHolder("gpu", "--permits", "1/2"), await startHolder("gpu", "--permits", "1/2")];
    expect((await sandbox.run(["run", "gpu", "--permits", "1/2", "--no-wait", "--", "true"])).code).toBe(124);
    await holders[0]?.stop();
    expect((await sandbox.run(["run", "gpu", "--permits", "1/2", "--no-wait", "--", "true"])).code).toBe(0);
    expect((await sandbox.run(["run", "gpu", "--permits", "2/2", "--no-wait", "--", "true"])).code).toBe(124);
    await holders[1]?.stop();
  });

  test("several keys are acquired together, whatever their order", async () => {
    const first = await startHolder("m2");
    const run = sandbox.start(["run", "m2", "m1", "--", "echo", "both"]);
    await sandbox.waitForQueue("m2");
    expect(run.out()).toBe("");
    await first.stop();
    expect((await run.ended).out).toBe("both\n");
    // one of them is busy: nothing of the other is kept
    const second = await startHolder("m2");
    expect((await sandbox.run(["run", "m1", "m2", "--no-wait", "--", "true"])).code).toBe(124);
    expect((await sandbox.run(["run", "m1", "--no-wait", "--", "true"])).code).toBe(0);
    await second.stop();
  });
});

describe.concurrent("messages while waiting", () => {
  test("after a second, and no sooner, it reports that it waits and for which holder", async () => {
    const first = await startHolder("notice", "--label", "ana@web-1 pid 4121 (node)");
    const started = performance.now();
    const second = sandbox.start(["run", "notice", "--", "echo", "done"]);
    await until(() => second.err() !== "", { within: 20_000, what: "the notice" });
    expect(performance.now() - started).toBeGreaterThan(900);
    expect(second.err()).toMatch(
      /^holdfast: waiting for "notice": held by ana@web-1 pid 4121 \(node\) for \d+ m?s, 1 ahead of you\n$/,
    );
    await first.stop();
    const { code, out, err } = await second.ended;
    expect({ code, out }).toEqual({ code: 0, out: "done\n" });
    expect(err.split("\n").length).toBe(2);
  });

  test("a run that is granted the lock before its first notice prints none", async () => {
    const args = ["serve", "--listen", "holdfast://127.0.0.1:0", "--state", join(sandbox.folder, "late")];
    const server = sandbox.start(args);
    await until(() => server.out().includes("\n"), { within: 20_000, what: "the server" });
    await using proxy = await tcpProxy({ host: "127.0.0.1", port: Number(/:(\d+)\n/.exec(server.out())?.[1]) });
    // the answer to its claim comes after a second, when it looks up the holder, and before the answer to that
    proxy.toClient.delay(1_500);
    const port = "port" in proxy.address ? proxy.address.port : 0;
    const run = sandbox.run([
      "run",
      "late",
      "--url",
      `holdfast://127.0.0.1:${port}`,
      "--",
      "sh",
      "-c",
      "sleep 2; echo ran",
    ]);
    expect(await run).toMatchObject({ code: 0, out: "ran\n", err: "" });
    server.process.kill("SIGTERM");
    await server.ended;
  });

  test.runIf(process.platform === "linux")(
    "a notice that cannot be written, as on a full disk, stops nothing",
    async () => {
      const first = await startHolder("mute");
      const script = '"$0" "$1" run mute --verbose -- echo ran 2>/dev/full';
      const second = sandbox.startProgram(["sh", "-c", script, process.execPath, PROGRAM]);
      await sandbox.waitForQueue("mute");
      // longer than until the first notice
      const started = performance.now();
      await until(() => performance.now() - started > 1_200, { within: 20_000, what: "the notice to fail" });
      await first.stop();
      expect(await second.ended).toMatchObject({ code: 0, out: "ran\n" });
    },
  );

  test("a label with control and bidi characters cannot forge a line or reverse one", async () => {
    const first = await startHolder("forged", "--label", "eve\u202e\u001b[2Jroot\u2066");
    const { err } = await sandbox.run(["run", "forged", "--wait", "100ms", "--", "true"]);
    expect(err).toContain("eve\\u{202e} [2Jroot\\u{2066}");
    const { out } = await sandbox.run(["ls", "forged"]);
    expect(out).toContain("eve\\u{202e} [2Jroot\\u{2066}");
    const json = (await sandbox.run(["ls", "forged", "--json"])).out;
    expect(json).toContain("eve\\u202e [2Jroot\\u2066");
    expect(JSON.parse(json)).toMatchObject({ label: "eve\u202e [2Jroot\u2066" });
    await first.stop();
  });

  test("a key with bidi characters is shown escaped", async () => {
    const first = await startHolder("k\u202ey");
    const { err } = await sandbox.run(["run", "k\u202ey", "--no-wait", "--", "true"]);
    expect(err).toContain('"k\\u{202e}y" is busy');
    await first.stop();
  });

  test("the default label names user, host, wrapper and program, never the arguments", async () => {
    const first = sandbox.start(["run", "labelled", "--", "sh", "-c", "echo held; : s3cret; sleep 60"]);
    await until(() => first.out().includes("held"), { within: 20_000, what: "the holder" });
    const { out } = await sandbox.run(["ls", "labelled", "--json"]);
    expect(JSON.parse(out).label).toMatch(new RegExp(`^\\S+@\\S+ pid ${first.pid} \\(sh\\)$`));
    expect(out).not.toContain("s3cret");
    first.process.kill("SIGTERM");
    expect((await first.ended).code).toBe(143);
  });
});
