/** `holdfast torture` as people call it: its verdicts and exit codes, what it refuses, and what it leaves behind. */

import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { createRandom } from "../../src/testing/random.ts";
import { until } from "../../src/testing/until.ts";
import { readHistory } from "../../src/torture/history.ts";
import type { StoreName } from "../../src/torture/stores/stores.ts";
import { STORE_NAMES } from "../../src/torture/stores/stores.ts";
import { cliSandbox } from "../support/cli-sandbox.ts";
import { IS_LONG_RUN } from "../support/processes/process-harness.ts";
import { startRedis } from "../support/stores/redis.ts";

const sandbox = cliSandbox();
const SEED = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000);
const TIMEOUT = { timeout: IS_LONG_RUN ? 1_800_000 : 120_000 };
const TIME = IS_LONG_RUN ? "15m" : "10s";
/** In the short form one of each kind: our server, one server of others, and several. The suite of NATS installs its program. */
const STORES: readonly StoreName[] = IS_LONG_RUN
  ? STORE_NAMES.filter((name) => name !== "nats")
  : ["server", "server-tcp", "redis", "redis-sentinel"];

interface Summary {
  readonly verdict: string;
  readonly violations: readonly unknown[];
  readonly reasons: readonly string[];
  readonly figures: { readonly holds: number; readonly effectiveFaults: number; readonly leftovers: number | null };
}

function outputDirectory(name: string): string {
  return `${sandbox.folder}/${name}-${createRandom(performance.now()).int(1_000_000)}`;
}

for (const store of STORES) {
  test.concurrent(`${store}, seed ${SEED}: no violation under faults`, TIMEOUT, async () => {
    const out = outputDirectory(store);
    const args = ["torture", "--start", store, "--time", TIME, "--seed", String(SEED), "--out", out, "--json"];
    const { code, out: text, err } = await sandbox.run(args);
    const summary = JSON.parse(text) as Summary;
    expect([summary.violations, summary.reasons, err.includes("internal error")]).toEqual([[], [], false]);
    expect(code).toBe(0);
    expect(summary.figures.leftovers).toBe(0);
    expect(JSON.parse(readFileSync(`${out}/summary.json`, "utf8"))).toMatchObject({ verdict: "ok", seed: SEED });
    let events = 0;
    for (const _ of readHistory(`${out}/history.jsonl`)) events++;
    expect(events).toBeGreaterThan(summary.figures.holds);
    console.log(`figure: torture of ${store} (seed ${SEED}): ${JSON.stringify(summary.figures)}`);
  });
}

test.concurrent("without faults the verdict is unknown", TIMEOUT, async () => {
  const args = ["torture", "--faults", "none", "--time", "2s", "--out", outputDirectory("none")];
  const { code, out } = await sandbox.run(args);
  expect(out).toContain("unknown, because no fault was injected");
  expect(code).toBe(2);
});

test.concurrent("a rival that grants to all is found", TIMEOUT, async () => {
  const rival = new URL("./no-lock.js", import.meta.url).pathname;
  const args = ["torture", "--rival", rival, "--time", "2s", "--out", outputDirectory("rival"), "--json"];
  const { code, out } = await sandbox.run(args);
  const { violations } = JSON.parse(out) as { violations: readonly { readonly invariant: string }[] };
  expect(new Set(violations.map(({ invariant }) => invariant))).toContain("exclusion");
  expect(code).toBe(1);
});

test.concurrent("the server of a rival takes the place of the store", TIMEOUT, async () => {
  const rival = new URL("./own-server.js", import.meta.url).pathname;
  const args = [
    "torture",
    "--rival",
    rival,
    "--faults",
    "kill",
    "--time",
    "2s",
    "--out",
    outputDirectory("own"),
    "--json",
  ];
  const { code, out } = await sandbox.run(args);
  expect(JSON.parse(out)).toMatchObject({
    sentence: expect.stringContaining("own-server on a server of its own"),
    verdict: "violated",
    figures: { leftovers: null, bystanderMedianMs: null },
  });
  expect(code).toBe(1);
});

const REFUSED: readonly (readonly [args: readonly string[], message: string])[] = [
  [["--url", "redis://127.0.0.1:1", "--faults", "store-kill", "--yes"], "--faults store-kill would harm your store"],
  [["--url", "redis://127.0.0.1:1", "--faults", "kill,store-restart", "--yes"], "--faults store-restart would harm"],
  ...(["store-pause", "store-fail-over", "store-wipe", "power-loss"] as const).map(
    (fault) =>
      [
        ["--url", "redis://127.0.0.1:1", "--faults", fault, "--yes"],
        `--faults ${fault} would harm your store`,
      ] as const,
  ),
  [["--url", "redis://127.0.0.1:1", "--start", "redis"], "--start and --url exclude each other"],
  [["--url", "redis://127.0.0.1:1"], "--yes is needed to do this without a terminal; nothing was done"],
  [["--start", "oracle"], "--start must be one or more of server,"],
  [["--start", ""], "--start must be"],
  [["--faults", "gremlins"], "--faults must be none, or some of kill,"],
  [["--faults", ""], "--faults must be"],
  [["--time", "0"], "--time must be"],
  [["--time", "soon"], "--time must be a duration"],
  [["--seed", "-1"], "--seed must be a number"],
  [["--seed", "1e3"], "--seed must be a number"],
  [["--rival", "./missing.js"], "./missing.js does not exist"],
];

for (const [args, message] of REFUSED) {
  test.concurrent(`refused: torture ${args.join(" ")}`, async () => {
    const { code, err, out } = await sandbox.run(["torture", ...args, "--out", `${sandbox.folder}/refused`]);
    expect(err).toContain(message);
    expect([code, out, existsSync(`${sandbox.folder}/refused`)]).toEqual([64, "", false]);
  });
}

test.concurrent(
  "on a user's store: it says what it will do, and leaves no lock behind",
  TIMEOUT,
  async ({ onTestFinished }) => {
    const redis = await startRedis();
    onTestFinished(() => redis.stop());
    const out = outputDirectory("url");
    const args = ["torture", "--url", redis.url, "--yes", "--time", "5s", "--seed", String(SEED), "--out", out];
    const { err } = await sandbox.run(args);
    expect(err).toContain("never the store or its other users");
    const summary = JSON.parse(readFileSync(`${out}/summary.json`, "utf8")) as Summary;
    expect([summary.violations, summary.figures.leftovers]).toEqual([[], 0]);
  },
);

for (const signal of ["SIGINT", "SIGKILL"] as const) {
  test.concurrent(`${signal} in the middle leaves no process behind`, TIMEOUT, async () => {
    const out = outputDirectory(signal);
    mkdirSync(out);
    const command = sandbox.start(["torture", "--start", "redis", "--time", "60s", "--out", out]);
    const historyPath = `${out}/history.jsonl`;
    const started = (): number[] =>
      existsSync(historyPath)
        ? readFileSync(historyPath, "utf8")
            .split("\n")
            .filter((line) => line.includes('"phase":"started"'))
            .map((line) => (JSON.parse(line) as { readonly pid: number }).pid)
        : [];
    await until(() => readIfThere(historyPath).includes('"granted"'), { within: 30_000, what: "a lock" });
    command.process.kill(signal);
    const { code, signal: endedBy } = await command.ended;
    if (signal === "SIGINT") expect([code, endedBy]).toEqual([null, "SIGINT"]);
    await until(() => !started().some(isAlive), { within: 10_000, what: "the end of all workers" });
  });
}

function readIfThere(path: string): string {
  return existsSync(path) ? readFileSync(path, "utf8") : "";
}

function isAlive(pid: number): boolean {
  const stat = existsSync(`/proc/${pid}/stat`) ? readFileSync(`/proc/${pid}/stat`, "utf8") : "";
  return stat !== "" && !/\) Z /.test(stat);
}
