import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { builtFile } from "../../support/built-file.ts";
import type { RunningCommand } from "../../support/cli-sandbox.ts";
import { cliSandbox } from "../../support/cli-sandbox.ts";

const sandbox = cliSandbox();

/** A program that uses the library, and holds until it is ended. */
const HOLDER = `
import { connect } from ${JSON.stringify(String(pathToFileURL(builtFile("dist/index.js"))))};
const locks = await connect();
await locks.mutex("k").acquire({ ttl: "session" });
console.log("held");
setInterval(() => {}, 60_000);
`;

test("during recovery the commands report the recovery, not that the lock is free", async () => {
  const address = `holdfast+unix:${join(sandbox.folder, "s")}`;
  const url = address;
  const serve = async (): Promise<RunningCommand> => {
    const started = sandbox.start(["serve", "--listen", address, "--state", join(sandbox.folder, "state"), "--quiet"]);
    await until(() => started.out().includes("listening"), { within: 20_000, what: "the server" });
    return started;
  };
  const first = await serve();
  // it holds, and cannot reconnect; of a run the server would know its state
  const holder = sandbox.startProgram([process.execPath, "--input-type=module", "-e", HOLDER], {
    env: { HOLDFAST_URL: url },
  });
  await until(() => holder.out().includes("held"), { within: 20_000, what: "the holder" });
  holder.process.kill("SIGSTOP");
  first.process.kill("SIGKILL");
  await first.ended;
  const second = await serve();
  const notice = "the store grants nothing new for about \\d+ s \\(recovery after a restart\\)";
  const [busyRun, waitingRun] = await Promise.all([
    sandbox.run(["run", "other", "--url", url, "--no-wait", "--", "true"]),
    sandbox.run(["run", "other", "--url", url, "--wait", "5s", "--", "true"]),
  ]);
  // not 124: it is unknown whether the lock is held
  expect(busyRun).toMatchObject({ code: 69, out: "" });
  expect(busyRun.err).toMatch(new RegExp(`^holdfast: cannot grant "other": ${notice}; nothing was run\n$`));
  expect(waitingRun.err).toMatch(
    new RegExp(
      `^holdfast: waiting for "other": ${notice}.*\nholdfast: waited 5 s for "other": ${notice}.*; nothing was run\n$`,
    ),
  );
  const looked = await sandbox.run(["doctor", "--url", url, "--json"]);
  expect(looked.code).toBe(69);
  const acquired = await sandbox.run(["acquire", "other", "--url", url, "--no-wait", "--json"]);
  expect(acquired.code).toBe(69);
  expect(JSON.parse(acquired.err)).toMatchObject({ error: "paused", code: 69, keys: ["other"], reason: "recovery" });
  holder.process.kill("SIGCONT");
  expect((await sandbox.run(["run", "other", "--url", url, "--wait", "20s", "--", "echo", "free"])).out).toBe("free\n");
  holder.process.kill("SIGTERM");
  second.process.kill("SIGTERM");
  await Promise.all([holder.ended, second.ended]);
});
