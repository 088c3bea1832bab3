// The judge in tools/porcupine, which is not ours, on histories of which the verdict is known. Where there is no Go it is skipped.

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { HistoryEvent } from "../../../src/torture/history.ts";
import { doubleGrant, goodHistory, HEADER, sampleHold, sampleWorkers } from "./report/sample-history.ts";

const SOURCES = "tools/porcupine";
/** On a machine that has never compiled its modules. */
const BUILD_MS = 300_000;
const folder = mkdtempSync(join(tmpdir(), "holdfast-porcupine-"));
let program: string | null = null;
let reason = "";

beforeAll(() => {
  const hash = createHash("sha256");
  for (const name of ["go.sum", "history.go", "main.go", "model.go"]) hash.update(readFileSync(join(SOURCES, name)));
  const path = join(tmpdir(), `holdfast-judge-${process.getuid?.() ?? ""}-${hash.digest("hex").slice(0, 16)}`);
  if (!existsSync(path)) {
    const output = join(folder, "judge");
    const options = { cwd: SOURCES, encoding: "utf8", timeout: BUILD_MS } as const;
    const { status, stderr, error } = spawnSync("go", ["build", "-o", output, "."], options);
    reason = error?.message ?? stderr;
    if (status !== 0) return;
    // another run may have been faster: then its program is replaced by the same one
    renameSync(output, path);
  }
  program = path;
}, BUILD_MS);

afterAll(() => rmSync(folder, { recursive: true }));

beforeEach(({ skip }) => {
  if (program === null) skip(`the judge could not be compiled: ${reason}`);
});

function judge(events: readonly HistoryEvent[]): { readonly code: number | null; readonly output: string } {
  const path = join(folder, "history.jsonl");
  writeFileSync(path, events.map((event) => `${JSON.stringify(event)}\n`).join(""));
  const { status, stdout } = spawnSync(program as string, ["-timeout", "10s", path], { encoding: "utf8" });
  return { code: status, output: stdout };
}

const WORKERS = [HEADER, ...sampleWorkers()];
const FIRST = { worker: 0, op: 1, token: "10", from: 1_000, to: 1_200 } as const;

test("locks in turns are ok", () => {
  expect(judge(goodHistory())).toEqual({ code: 0, output: '"a": Ok (60 operations)\n' });
});

test("a lock that is granted twice has no possible order", () => {
  expect(judge(doubleGrant())).toMatchObject({ code: 1, output: expect.stringContaining('"a": Illegal') });
});

test("keys are judged by themselves", () => {
  const other = sampleHold({ ...FIRST, worker: 1, key: "b" });
  expect(judge([...WORKERS, ...sampleHold(FIRST), ...other])).toMatchObject({ code: 0 });
});

test("a token that does not rise has no possible order", () => {
  const next = sampleHold({ worker: 1, op: 1, token: "9", from: 1_300, to: 1_400 });
  expect(judge([...WORKERS, ...sampleHold(FIRST), ...next])).toMatchObject({ code: 1 });
});

test("a lock whose holder was killed may be granted before its lease ends", () => {
  const killed = sampleHold({ ...FIRST, to: 1_600 }).slice(0, 5);
  const death: HistoryEvent = { event: "worker", at: 1_350_000, worker: 0, pid: 4_000, phase: "killed", reason: "" };
  const next = (from: number) => sampleHold({ worker: 1, op: 1, token: "11", from, to: from + 50 });
  expect(judge([...WORKERS, ...killed, death, ...next(1_400)])).toMatchObject({ code: 0 });
  expect(judge([...WORKERS, ...killed, death, ...next(1_250)])).toMatchObject({ code: 1 });
});

test("permits: as many as the limit allows; readers: any number, but not beside a writer", () => {
  const share = (events: HistoryEvent[], permits: number, limit: number | null) =>
    events.map((event) => (event.event === "invoke" ? { ...event, permits, limit } : event));
  const second = sampleHold({ worker: 1, op: 1, token: "11", from: 1_050, to: 1_150 });
  const both = (permits: number, limit: number | null, other = limit) =>
    judge([...WORKERS, ...share(sampleHold(FIRST), permits, limit), ...share(second, 1, other)]).code;
  expect([both(2, 3), both(3, 3), both(1, null), both(1, null, 1)]).toEqual([0, 1, 0, 1]);
});

test("a request that failed puts no bound on others", () => {
  const events = sampleHold({ worker: 1, op: 1, token: "11", from: 1_050, to: 1_150 });
  const unknown: HistoryEvent = { event: "unknown", at: 1_060_000, worker: 1, op: 1, reason: "no answer" };
  expect(judge([...WORKERS, ...sampleHold(FIRST), ...events.slice(0, 1), unknown])).toMatchObject({ code: 0 });
});
