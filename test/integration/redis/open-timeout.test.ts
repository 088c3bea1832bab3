/** A process that opens its first connection while the store falls silent: its requests get an error, and it does not exit before. */

import { execFile, fork } from "node:child_process";
import { once } from "node:events";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { builtFile } from "../../support/built-file.ts";
import type { RedisServer } from "../../support/stores/redis.ts";
import { startRedis } from "../../support/stores/redis.ts";

const ATTEMPTS = 20;
let server: RedisServer;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(() => server.stop());

test("Redis stops while its first calls are under way", async () => {
  const program = `
    import { Redis } from "ioredis";
    const { redis } = await import(${JSON.stringify(builtFile("build/src/drivers/redis/driver.js"))});
    const clients = Array.from({ length: ${ATTEMPTS} }, () => new Redis(${server.port}, "127.0.0.1"));
    for (const client of clients) {
      await client.ping();
      client.stream.unref();
    }
    process.send("connected");
    await new Promise((resolve) => process.once("message", resolve));
    process.disconnect();
    let errors = 0;
    for (const client of clients) await redis(() => client, { connectTimeout: 50 }).open({}).catch(() => errors++);
    console.log(errors);`;
  const child = fork("-", [], {
    execArgv: ["--input-type=module", "-e", program],
    stdio: ["ignore", "pipe", "inherit", "ipc"],
  });
  let output = "";
  child.stdout?.on("data", (data) => {
    output += data;
  });
  await once(child, "message");
  server.signal("SIGSTOP");
  child.send("go on");
  const [code] = await once(child, "exit");
  server.signal("SIGCONT");
  expect([code, output.trim()]).toEqual([0, String(ATTEMPTS)]);
});

test("a database does not answer", async () => {
  const program = `
    const { openDatabase } = await import(${JSON.stringify(builtFile("build/src/drivers/sql/open.js"))});
    const { systemClock } = await import(${JSON.stringify(builtFile("build/src/util/clock.js"))});
    const database = { name: "test", open: () => new Promise(() => undefined) };
    let errors = 0;
    for (let attempt = 0; attempt < ${ATTEMPTS}; attempt++)
      await openDatabase(database, systemClock, 20.5 + attempt / ${ATTEMPTS}).catch(() => errors++);
    console.log(errors);`;
  const run = promisify(execFile);
  const { stdout } = await run(process.execPath, ["--input-type=module", "-e", program]);
  expect(stdout.trim()).toBe(String(ATTEMPTS));
});
