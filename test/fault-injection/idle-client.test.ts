/** The library does not affect its process unless it holds or waits for a lock. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath, pathToFileURL } from "node:url";
import { describe, test, vi } from "vitest";
import { builtFile } from "../support/built-file.ts";

// processes: a busy machine needs time to start them
vi.setConfig({ testTimeout: 30_000 });

const INDEX = pathToFileURL(builtFile("dist/index.js")).href;
const MEMORY = pathToFileURL(builtFile("dist/drivers/memory.js")).href;

interface ProgramResult {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly out: string;
  readonly ms: number;
}

/** Runs a program of that text; `when` gets its output, and may signal it. */
async function runProgram(
  text: string,
  when: (out: string, kill: (signal: NodeJS.Signals) => void) => void = () => {},
): Promise<ProgramResult> {
  const head = `import { closeOnSignal, createLocks } from ${JSON.stringify(INDEX)}; import { memory } from ${JSON.stringify(MEMORY)};\n`;
  const started = performance.now();
  const child = spawn(process.execPath, ["--unhandled-rejections=strict", "--input-type=module", "-e", head + text], {
    cwd: fileURLToPath(new URL("../..", import.meta.url)),
    stdio: ["ignore", "pipe", "inherit"],
  });
  const timeout = setTimeout(() => child.kill("SIGKILL"), 20_000);
  let out = "";
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
    out += chunk;
    when(out, (signal) => child.kill(signal));
  });
  const [code, signal] = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
  clearTimeout(timeout);
  return { code, signal, out, ms: performance.now() - started };
}

describe("an idle client does not keep its process alive", () => {
  test("after acquire and release, without close()", async () => {
    const programResult = await runProgram(`
      const locks = createLocks(memory());
      for (let i = 0; i < 100; i++) await (await locks.acquire("k" + i)).release();
      await locks.using("k", async () => {});
      console.log("done");
    `);
    assert.deepEqual([programResult.code, programResult.signal, programResult.out], [0, null, "done\n"]);
  });

  test("with cached locks, which are given back before the process exits", async () => {
    const programResult = await runProgram(`
      const driver = memory();
      const { release } = driver;
      driver.release = (items) => {
        console.log("releases", items.length);
        return release(items);
      };
      const locks = createLocks(driver, { cache: "1h" });
      for (let i = 0; i < 3; i++) await (await locks.acquire("k" + i)).release();
      console.log("unused", (await locks.list()).filter(({ unusedMs }) => unusedMs >= 0).length);
    `);
    assert.deepEqual(
      [programResult.code, programResult.signal, programResult.out],
      [0, null, "unused 3\nreleases 3\n"],
    );
  });

  test("a held lock keeps the process alive until it is released", async () => {
    const programResult = await runProgram(`
      const locks = createLocks(memory(), { ttl: 3_000 });
      const lock = await locks.acquire("k");
      setTimeout(async () => { console.log(await lock.release()); }, 4_000).unref();
    `);
    assert.deepEqual([programResult.code, programResult.signal, programResult.out], [0, null, "true\n"]);
  });
});

describe("closeOnSignal()", () => {
  test.each(["SIGTERM", "SIGINT"] as const)("releases the locks on %s, then ends with that signal", async (signal) => {
    let hasSent = false;
    const programResult = await runProgram(
      `
      const locks = createLocks(memory());
      closeOnSignal(locks);
      locks.on("lost", () => {});
      const lock = await locks.acquire("k");
      lock.signal.addEventListener("abort", () => console.log(lock.signal.reason.reason));
      console.log("ready");
    `,
      (out, kill) => {
        if (!hasSent && out.includes("ready")) kill(signal);
        hasSent ||= out.includes("ready");
      },
    );
    assert.deepEqual(
      [programResult.code, programResult.signal, programResult.out],
      [null, signal, "ready\nreleased\n"],
    );
  });

  test("when removed, the signal has its usual effect at once", async () => {
    let hasSent = false;
    const programResult = await runProgram(
      `
      const locks = createLocks(memory());
      closeOnSignal(locks)[Symbol.dispose]();
      const lock = await locks.acquire("k");
      lock.signal.addEventListener("abort", () => console.log("aborted"));
      console.log("ready");
    `,
      (out, kill) => {
        if (!hasSent && out.includes("ready")) kill("SIGTERM");
        hasSent ||= out.includes("ready");
      },
    );
    assert.deepEqual([programResult.code, programResult.signal, programResult.out], [null, "SIGTERM", "ready\n"]);
  });

  /** A client that closes at once, and one with 20 locks whose store takes its time. */
  const TWO_CLIENTS = `
    const fast = createLocks(memory());
    const driver = memory();
    const { release } = driver;
    driver.release = async (items) => {
      await new Promise((resolve) => setTimeout(resolve, 500));
      const answers = await release(items);
      console.log("released", answers.filter(Boolean).length);
      return answers;
    };
    const slow = createLocks(driver, { ttl: "1m" });
    closeOnSignal(fast);
    closeOnSignal(slow);
    await fast.acquire("k");
    for (let i = 0; i < 20; i++) await slow.acquire("k" + i);
  `;

  const runWithSignal = async (text: string): Promise<ProgramResult> => {
    let hasSent = false;
    return runProgram(text, (out, kill) => {
      if (!hasSent && out.includes("ready")) kill("SIGTERM");
      hasSent ||= out.includes("ready");
    });
  };

  test("of several clients: the signal is raised when all are closed", async () => {
    const result = await runWithSignal(`${TWO_CLIENTS} console.log("ready");`);
    assert.deepEqual([result.code, result.signal, result.out], [null, "SIGTERM", "ready\nreleased 20\n"]);
  });

  test.each([
    ["on", "behind", (handler: string) => `${TWO_CLIENTS} ${handler}`],
    ["once", "behind", (handler: string) => `${TWO_CLIENTS} ${handler}`],
    ["once", "in front", (handler: string) => `${handler} ${TWO_CLIENTS}`],
  ])(
    "a handler of the program, by %s() and %s, gets the signal once and ends the process",
    async (method, _, place) => {
      const result = await runWithSignal(`${place(`process.${method}("SIGTERM", () => console.log("draining"));`)}
      setTimeout(() => process.exit(3), 1_500);
      console.log("ready");
    `);
      assert.deepEqual([result.code, result.signal, result.out], [3, null, "ready\ndraining\nreleased 20\n"]);
    },
  );

  test.each(["signal-exit", "signal-exit3"])(
    "a library that cleans up with %s ends the process when the locks are released",
    async (library) => {
      const onExit = `
      const { default: v3, onExit = v3 } = await import(${JSON.stringify(library)});
      onExit((code, signal) => console.log("cleaned up", signal));
    `;
      for (const program of [`${onExit} ${TWO_CLIENTS}`, `${TWO_CLIENTS} ${onExit}`]) {
        const result = await runWithSignal(`${program} console.log("ready");`);
        const out = "ready\nreleased 20\ncleaned up SIGTERM\n";
        assert.deepEqual([result.code, result.signal, result.out], [null, "SIGTERM", out]);
      }
    },
  );

  test.each(["", 'const { onExit } = await import("signal-exit"); onExit(() => {});'])(
    "a second signal ends the process at once (%j)",
    async (others) => {
      let sent = 0;
      const result = await runProgram(
        `
        const driver = memory();
        driver.release = () => {
          console.log("releasing");
          // before the signal is raised for locks that are not released
          setTimeout(() => console.log("not ended"), 1_900);
          return new Promise(() => {});
        };
        const locks = createLocks(driver);
        closeOnSignal(locks);
        ${others}
        await locks.acquire("k");
        console.log("ready");
      `,
        (out, kill) => {
          if (out.split("\n").length - 1 <= sent || sent === 2) return;
          sent++;
          kill("SIGTERM");
        },
      );
      assert.deepEqual([result.code, result.signal, result.out, sent], [null, "SIGTERM", "ready\nreleasing\n", 2]);
    },
  );
});
