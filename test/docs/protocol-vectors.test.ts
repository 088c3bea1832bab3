// Plays the vectors of docs/reference/protocol.md against the server, byte for byte.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { AccessControl } from "../../src/auth/access-control.ts";
import { ALLOW_ALL, createAccessControl, hashCredential } from "../../src/auth/access-control.ts";
import { decodeEvents, decodeInfo, decodeWatchFrame } from "../../src/protocol/admin-frames.ts";
import { decodeAnswer, decodeLine, decodePage } from "../../src/protocol/frames.ts";
import { decodeConnectionError, decodeServerHello, PACKAGE_VERSION } from "../../src/protocol/handshake.ts";
import { composeServer } from "../../src/server/compose.ts";
import type { Connection } from "../../src/server/connection/connection.ts";
import { DEFAULT_LIMITS } from "../../src/server/limits.ts";
import { NO_COMMAND_RUNS } from "../../src/server/runs/command-run.ts";
import type { LockService } from "../../src/server/service.ts";
import { FakeClock, flushEventLoop } from "../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../support/leak-check.ts";
import { MemoryStorage } from "../support/server-harness.ts";

checkLeaksAfterEach();

const RUN_ID = "k3vq7m2a";

interface ProtocolVector {
  readonly name: string;
  readonly steps: readonly string[];
}

const vectors: ProtocolVector[] = [
  ...readFileSync("docs/reference/protocol.md", "utf8").matchAll(/```vector (.*)\n([^`]*)```/g),
].map(([, name, text]) => ({ name: name as string, steps: (text as string).trimEnd().split("\n") }));

/** Random, and so in this document. */
const RESTORED_STATE = "bq3x6l7mz2k4dw5hynr7ocpvta";

class VectorRunner {
  readonly clock = new FakeClock();
  disk = new MemoryStorage();
  service!: LockService;
  readonly #connections = new Map<string, { link: Connection; got: string[]; closed: boolean }>();

  async start(access: AccessControl = ALLOW_ALL): Promise<void> {
    const log = (message: string, error?: unknown): void => {
      // a revocation is logged, and is not an error
      if (error !== undefined) throw new Error(`${message}: ${error}`);
    };
    const { clock, disk } = this;
    const parts = await composeServer({
      clock,
      log,
      runId: RUN_ID,
      storage: disk,
      firstStart: false,
      commandRuns: NO_COMMAND_RUNS,
      access,
      limits: DEFAULT_LIMITS,
      remote: false,
      sessionMs: 30_000,
      probe: () => "running",
      runDirectory: null,
    });
    this.service = parts.service;
  }

  at(name: string): { link: Connection; got: string[]; closed: boolean } {
    let connection = this.#connections.get(name);
    if (connection === undefined) {
      const newConnection = { got: [] as string[], closed: false };
      const link = this.service.accept(
        {
          write: (text) => {
            expect(text.endsWith("\n")).toBe(true);
            newConnection.got.push(...text.slice(0, -1).split("\n"));
          },
          close: () => {
            newConnection.closed = true;
          },
        },
        { isLocal: true, address: "" },
      );
      connection = Object.assign(newConnection, { link });
      this.#connections.set(name, connection);
    }
    return connection;
  }

  /** Checks that every line received was expected. */
  expectNothingMore(): string[] {
    return [...this.#connections.values()].flatMap(({ got }) => got);
  }
}

async function runStep(step: string, vectorRunner: VectorRunner): Promise<void> {
  const [, who, what, rest] = /^(?:([A-Z])([>:<]) |-- )(.*)$/.exec(step) ?? [];
  if (who === undefined) return executeDirective(rest as string, vectorRunner);
  const connection = vectorRunner.at(who);
  if (what === ">") connection.link.receive([rest as string]);
  else if (what === "<") await expectLine(rest as string, connection);
  else if (rest === "end") connection.link.transportClosed();
  else if (rest === "closed") expect(connection.closed).toBe(true);
  else throw new Error(`no such step: ${step}`);
}

async function executeDirective(directive: string, vectorRunner: VectorRunner): Promise<void> {
  const pause = /^(\d+) s pass(?:es)?$/.exec(directive);
  if (pause !== null) return vectorRunner.clock.advance(Number(pause[1]) * 1_000);
  const accountMatch = /^the server knows "(.*)" as (.*), who may hold "(.*)" for (\d+) s$/.exec(directive);
  if (accountMatch !== null) {
    const [, credential, name, prefix, seconds] = accountMatch as unknown as [string, string, string, string, string];
    const rules = [{ prefix, rights: ["acquire", "inspect"] as const, maxHoldMs: Number(seconds) * 1_000 }];
    // there was nothing before
    vectorRunner.disk = new MemoryStorage();
    return vectorRunner.start(createAccessControl([{ name, hashes: [hashCredential(credential)], rules }]));
  }
  const crash = /^the server has crashed; "(.*)" may hold something$/.exec(directive);
  if (crash === null) throw new Error(`no such step: ${directive}`);
  vectorRunner.disk.addSession({
    id: crash[1] as string,
    isLocal: true,
    label: "",
    pid: null,
    pidStart: null,
    account: "",
  });
  await vectorRunner.start();
}

async function expectLine(line: string, { got }: { got: string[] }): Promise<void> {
  // an answer that needs a write comes a few rounds of the event loop later
  if (got.length === 0) await flushEventLoop(40);
  const first = got.shift();
  if (line === "hello") expect(decodeServerHello(first as string)).toMatchObject({ protocol: 1, runId: RUN_ID });
  else expect(first?.replace(/"state":\{"id":"[a-z2-7]{26}"/, `"state":{"id":"${RESTORED_STATE}"`)).toBe(line);
}

test.each(vectors)("$name", async ({ steps }) => {
  const vectorRunner = new VectorRunner();
  await vectorRunner.start();
  for (const step of steps) await runStep(step, vectorRunner);
  await flushEventLoop();
  expect(vectorRunner.expectNothingMore()).toEqual([]);
});

test("the client decodes the frames in the vectors", () => {
  const lines = vectors.flatMap(({ steps }) =>
    steps.filter((step) => /^[A-Z]< /.test(step)).map((step) => step.slice(3)),
  );
  const seen = new Set<string>();
  for (const line of lines.filter((it) => it !== "hello")) {
    if (line.startsWith('{"hello"')) seen.add(decodeServerHello(line).runId);
    else if (line.startsWith("{")) seen.add(decodeConnectionError(line)?.code as string);
    else {
      for (const frame of decodeLine(line, RUN_ID).slice(1) as unknown[][]) {
        const [verb, , result] = frame;
        seen.add(verb as string);
        if (verb === "push") decodeAnswer(result);
        else if (verb === "events") expect(decodeWatchFrame(frame).events.length).toBeGreaterThan(0);
        else if (verb === "ok" && Array.isArray(result) && Array.isArray(result[0]) && result[0].length > 7)
          expect(decodeEvents(result)).toHaveLength(result.length);
        else if (verb === "ok" && typeof result === "object" && !Array.isArray(result))
          expect(decodeInfo(result).version).toBe(PACKAGE_VERSION);
        else if (verb === "ok" && Array.isArray(result) && typeof result[0] === "string") decodeAnswer(result);
        else if (verb === "ok" && Array.isArray(result) && typeof result[1] === "boolean") decodePage(result);
      }
    }
  }
  expect([...seen].sort()).toEqual(
    [RUN_ID, "AUTH", "PROTOCOL", "VERSION", "error", "events", "ok", "push", "recalled"].sort(),
  );
});

test("there are vectors, and the page names the version", () => {
  expect(vectors.length).toBeGreaterThan(12);
  expect(JSON.parse(readFileSync("package.json", "utf8")).version).toBe(PACKAGE_VERSION);
});
