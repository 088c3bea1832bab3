import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import { seededRandom } from "../support/seeded-random.ts";
import { until } from "../support/wait-for.ts";
import { counting } from "./counting.ts";
import { allProceeded, loaded, longestStop, WITHIN_MS, WORKERS } from "./load.ts";
import { signal } from "./processes.ts";
import { openRegister } from "./register.ts";
import type { Served } from "./scene.ts";
import { LONG, test } from "./scene.ts";

const KILLS = LONG ? 40 : 3;
const MOST_BETWEEN_MS = LONG ? 2_000 : 1_000;
const KILLING_MS = KILLS * MOST_BETWEEN_MS;

const seed = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000);

test.concurrent(`the server on demand killed ${KILLS} times under load: no double grant, no token repeated, everybody proceeds (HOLDFAST_SEED=${seed})`, {
  timeout: 3 * KILLING_MS + 3 * WITHIN_MS,
}, async ({ here }) => {
  const random = seededRandom(seed);
  const register = await openRegister(here);
  const workers = await loaded(here, "", register);
  const count = counting(here.folder);
  let over = false;
  const wrapped = async (): Promise<void> => {
    while (!over) {
      const run = here.start(["run", "counter", "--", ...count.command(0.05)]);
      expect(await run.ended, run.err()).toEqual({ code: 0, signal: null });
    }
  };
  const kills = async (): Promise<bigint> => {
    for (let n = 0; n < KILLS; n++) {
      await delay(random.int(MOST_BETWEEN_MS));
      const [server] = await until(() => (here.servers().length > 0 ? here.servers() : null), {
        within: 10_000,
        what: "a server",
      });
      signal(server!, "SIGKILL");
    }
    const last = process.hrtime.bigint();
    await delay(MOST_BETWEEN_MS);
    over = true;
    return last;
  };
  const [lastKill] = await Promise.all([kills(), wrapped(), wrapped()]);
  await allProceeded(workers, register, lastKill);
  const { faults, counter } = count.history();
  expect(faults).toEqual([]);
  expect(new Set(here.everListened()).size).toBeGreaterThan(1);
  console.log(
    `figure: server on demand killed ${KILLS} times: ${register.log.length / 2} turns of ${WORKERS} clients, ${counter} runs, longest stop ${longestStop(register).toFixed(0)} ms`,
  );
});

test.concurrent(`a server on TCP killed ${KILLS} times under load and started again on its port: no double grant, no token repeated, everybody proceeds`, {
  timeout: 3 * KILLING_MS + 3 * WITHIN_MS,
}, async ({ here }) => {
  const random = seededRandom(seed);
  const register = await openRegister(here);
  let server: Served = await here.serve(["--listen", "tcp://127.0.0.1:0"]);
  const address = server.address;
  const workers = await loaded(here, server.url, register);
  for (let n = 0; n < KILLS; n++) {
    await delay(random.int(MOST_BETWEEN_MS));
    server.kill();
    await server.ended;
    server = await here.serve(["--listen", address]);
  }
  await allProceeded(workers, register, process.hrtime.bigint());
  console.log(
    `figure: server on TCP killed ${KILLS} times: ${register.log.length / 2} turns of ${WORKERS} clients, longest stop ${longestStop(register).toFixed(0)} ms`,
  );
});
