/** The command line on a database server: the same tests for each of them. */

import { beforeAll, describe, expect, test } from "vitest";
import { until } from "../../src/testing/until.ts";
import { cliSandbox } from "./cli-sandbox.ts";
import { expectNoOverlap } from "./nested-runs.ts";
import type { DatabaseServer, TestDatabase } from "./stores/sql-database.ts";

export const PASSWORD = "s3cret-pw";

/** A url that is refused: what of a working one is replaced, and what the command says. */
interface RefusedUrl {
  readonly what: string;
  readonly change: readonly [part: RegExp | string, replacement: string];
  readonly code: 64 | 69 | 77;
  readonly message: RegExp;
}

export interface DatabaseCommands {
  readonly server: () => DatabaseServer;
  /** Makes the user "app", who may do everything in the database. */
  createUser(database: TestDatabase): Promise<unknown>;
  readonly refusedUrls: readonly RefusedUrl[];
  /** Lines of `holdfast doctor`. */
  readonly doctor: readonly RegExp[];
}

export function testDatabaseCommands({ server, createUser, refusedUrls, doctor }: DatabaseCommands): void {
  const sandbox = cliSandbox();
  let url: string;
  let env: Readonly<Record<string, string>>;
  beforeAll(async () => {
    const database = await server().freshDatabase();
    await createUser(database);
    url = `${database.urlOf("app", PASSWORD)}?silenceWarnings=durability`;
    env = { HOLDFAST_URL: url };
  });
  const within = (what: string) => ({ within: 20_000, what });
  /** Runs a command under the lock, and waits until it runs. */
  const hold = async (key: string, ...flags: string[]) => {
    const command = "echo $HOLDFAST_TOKEN; exec sleep 60";
    const running = sandbox.start(["run", key, ...flags, "--", "sh", "-c", command], { env });
    await until(() => running.out() !== "", within("the command"));
    return running;
  };

  // most of their time is waiting
  describe.concurrent("a server that runs", () => {
    test("commands exclude each other and are listed; the waiting one runs when Ctrl-C ends the first", async () => {
      const first = await hold("nightly", "--label", "first");
      expect((await sandbox.run(["ls"], { env })).out).toMatch(/^nightly +held .* \d{16} +first$/m);
      const refused = await sandbox.run(["run", "nightly", "--no-wait", "--", "true"], { env });
      expect([refused.code, refused.err]).toEqual([
        124,
        expect.stringMatching(/^holdfast: "nightly" is busy: held by first/),
      ]);
      const second = sandbox.start(["run", "nightly", "--", "sh", "-c", "echo $HOLDFAST_TOKEN"], { env });
      await until(
        async () => /^nightly +waiting/m.test((await sandbox.run(["ls"], { env })).out),
        within("the waiter"),
      );
      first.process.kill("SIGINT");
      expect((await first.ended).code).toBe(130);
      expect((await second.ended).code).toBe(0);
      expect(BigInt(second.out())).toBeGreaterThan(BigInt(first.out()));
    });

    test("the lock of a run that was killed ends with its lease", async () => {
      const killed = await hold("killed", "--ttl", "2s");
      killed.process.kill("SIGKILL");
      const next = await sandbox.run(["run", "killed", "--wait", "20s", "--", "echo", "next"], { env });
      expect([next.code, next.out]).toEqual([0, "next\n"]);
    });

    test("a nested run, with the url of the environment, keeps the outer lock after its wrapper was killed, until its command has ended", () =>
      expectNoOverlap(sandbox, ["nested", "nested"], "; exit 5", 5, env));

    test("doctor shows the server", async () => {
      const { code, out } = await sandbox.run(["doctor"], { env });
      expect(code).toBe(0);
      for (const line of doctor) expect(out).toMatch(line);
      expect(out).toMatch(/^ok +latency +acquire and release take/m);
    });

    test.each(refusedUrls)(
      "a url with $what is refused: one sentence without the password, and nothing runs",
      async ({ change: [part, replacement], code, message }) => {
        const changed = url.replace(part, replacement);
        expect(changed).not.toBe(url);
        const ended = await sandbox.run(["run", "k", "--url", changed, "--", "echo", "ran"]);
        expect(ended).toMatchObject({ code, out: "", err: expect.stringMatching(message) });
        expect(ended.err).toMatch(/^holdfast: [^\n]*; nothing was run\n$/);
        expect(ended.err).not.toContain(PASSWORD);
      },
    );
  });

  test("a run keeps its lock while the server restarts, and loses it when the server stays away", async () => {
    const running = await hold("kept", "--ttl", "5s");
    await server().restart();
    const view = await sandbox.run(["ls", "--json"], { env });
    expect(view.out).toContain(running.out().trim());
    expect(running.err()).toBe("");
    await server().stop();
    const ended = await running.ended;
    await server().start();
    expect(ended.code).toBe(123);
    expect(ended.err).toMatch(/^holdfast: losing "kept" \(store unreachable for \d+ s\): sent TERM to/m);
    expect(ended.err).toMatch(/^holdfast: lost "kept" \(expired\); the command was ended$/m);
  });
}
