import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";
import { afterAll, describe, expect, test } from "vitest";
import { builtFile } from "../../support/built-file.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";

const runBundle = promisify(execFile);

/** A user's program that uses Redis by url and by its own client. */
const PROGRAM = `
import { connect, createLocks } from "${builtFile("dist/index.js")}";
import { redis } from "${builtFile("dist/drivers/redis/driver.js")}";
import { Redis } from "ioredis";

async function main(url) {
  const locks = await connect(url);
  const lock = await locks.acquire("bundled");
  const client = new Redis(url);
  const own = createLocks(redis(client));
  const next = own.acquire("bundled", { wait: "5s" });
  await lock.release();
  await (await next).release();
  await own.close();
  await locks.close();
  client.disconnect();
  console.log("handed over");
}
main(process.argv[2]).catch((error) => {
  console.log(error.code, error.message);
});
`;
const WITHOUT_CLIENTS = `
import { connect } from "${builtFile("dist/index.js")}";
connect(process.argv[2]).then(() => console.log("connected"), (error) => console.log(error.code, error.message));
`;
// needed by every bundle that contains CommonJS packages
const banner = { js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);' };

describe("bundled into one file", () => {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-bundle-"));
  afterAll(() => rmSync(folder, { recursive: true }));
  const bundled = async (
    program: string,
    format: "esm" | "cjs",
    alias: Record<string, string> = {},
  ): Promise<string> => {
    const outfile = join(folder, `${Object.keys(alias).length}.${format === "esm" ? "mjs" : "cjs"}`);
    await build({
      stdin: { contents: program, resolveDir: resolve("."), loader: "ts" },
      outfile,
      bundle: true,
      platform: "node",
      target: "node20",
      format,
      alias,
      external: Object.values(alias),
      logLevel: "error",
      logOverride: { "empty-import-meta": "silent" },
      ...(format === "esm" && { banner }),
    });
    return outfile;
  };

  withRedis((server) => {
    for (const format of ["esm", "cjs"] as const) {
      test(`as ${format} it locks, by url and by a client of the program`, { timeout: 30_000 }, async () => {
        const { stdout } = await runBundle(process.execPath, [await bundled(PROGRAM, format), server().url], {
          cwd: folder,
        });
        expect(stdout).toBe("handed over\n");
      });

      test(`as ${format}, a missing client package is named`, { timeout: 30_000 }, async () => {
        const file = await bundled(WITHOUT_CLIENTS, format, { ioredis: "not-there" });
        const { stdout } = await runBundle(process.execPath, [file, server().url], { cwd: folder });
        expect(stdout).toMatch(/^LOCK_STORE_REFUSED .*"ioredis".*npm install ioredis/);
      });
    }
  });
});
