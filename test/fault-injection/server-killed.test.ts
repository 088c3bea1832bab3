import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import { until } from "../../src/testing/until.ts";
import { sendSignal } from "../../src/torture/processes/process-tree.ts";
import { createCounterWorkload } from "../support/processes/counter-workload.ts";
import { openFencedRegister } from "../support/processes/fenced-register.ts";
import {
  expectAllProceeded,
  longestGapMs,
  PROGRESS_TIMEOUT_MS,
  startWorkload,
  WORKER_COUNT,
} from "../support/processes/lock-workload.ts";
import type { RunningServer } from "../support/processes/process-harness.ts";
import { IS_LONG_RUN, test } from "../support/processes/process-harness.ts";
import { seededRandom } from "../support/seeded-random.ts";

const KILLS = IS_LONG_RUN ? 40 : 3;
const MAX_KILL_INTERVAL_MS = IS_LONG_RUN ? 2_000 : 1_000;
const KILL_PERIOD_MS = KILLS * MAX_KILL_INTERVAL_MS;

const seed = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000);

test.concurrent(`the server on demand killed ${KILLS} times under load: no double grant, no token repeated, all waiters proceed (HOLDFAST_SEED=${seed})`, {
  timeout: 3 * KILL_PERIOD_MS + 3 * PROGRESS_TIMEOUT_MS,
}, async ({ harness }) => {
  const random = seededRandom(seed);
  const register = await openFencedRegister(harness);
  const workers = await startWorkload(harness, "", register);
  const count = createCounterWorkload(harness.folder);
  let isOver = false;
  const wrapped = async (): Promise<void> => {
    while (!isOver) {
      const run = harness.start(["run", "counter", "--", ...count.command(0.05)]);
      expect(await run.ended, run.err()).toEqual({ code: 0, signal: null });
    }
  };
  const kills = async (): Promise<bigint> => {
    for (let n = 0; n < KILLS; n++) {
      await delay(random.int(MAX_KILL_INTERVAL_MS));
      const [server] = await until(
        () => (harness.autostartedServers().length > 0 ? harness.autostartedServers() : null),
        {
          within: 10_000,
          what: "a server",
        },
      );
      sendSignal(server!, "SIGKILL");
    }
    const last = process.hrtime.bigint();
    await delay(MAX_KILL_INTERVAL_MS);
    isOver = true;
    return last;
  };
  const [lastKill] = await Promise.all([kills(), wrapped(), wrapped()]);
  await expectAllProceeded(workers, register, lastKill);
  const { faults, counter } = count.history();
  expect(faults).toEqual([]);
  expect(new Set(harness.autostartedServerPids()).size).toBeGreaterThan(1);
  console.log(
    `figure: server on demand killed ${KILLS} times: ${register.log.length / 2} turns of ${WORKER_COUNT} clients, ${counter} runs, longest stop ${longestGapMs(register).toFixed(0)} ms`,
  );
});

test.concurrent(`a server on TCP killed ${KILLS} times under load and started again on its port: no double grant, no token repeated, all waiters proceed`, {
  timeout: 3 * KILL_PERIOD_MS + 3 * PROGRESS_TIMEOUT_MS,
}, async ({ harness }) => {
  const random = seededRandom(seed);
  const register = await openFencedRegister(harness);
  let server: RunningServer = await harness.serve(["--listen", "holdfast://127.0.0.1:0"]);
  const { url } = server;
  const workers = await startWorkload(harness, server.url, register);
  for (let n = 0; n < KILLS; n++) {
    await delay(random.int(MAX_KILL_INTERVAL_MS));
    server.kill();
    await server.ended;
    server = await harness.serve(["--listen", url]);
  }
  await expectAllProceeded(workers, register, process.hrtime.bigint());
  console.log(
    `figure: server on TCP killed ${KILLS} times: ${register.log.length / 2} turns of ${WORKER_COUNT} clients, longest stop ${longestGapMs(register).toFixed(0)} ms`,
  );
});
