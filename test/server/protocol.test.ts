// Plays the vectors of docs/reference/protocol.md against the server, byte for byte.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { decodeAnswer, decodeLine, decodePage } from "../../src/protocol/frames.ts";
import { decodeRefusal, decodeWelcome, VERSION } from "../../src/protocol/hello.ts";
import { decodeEvents, decodeInfo, decodeWatched } from "../../src/protocol/tools.ts";
import type { Access } from "../../src/server/access.ts";
import { createAccess, hashOf, OPEN } from "../../src/server/access.ts";
import { Hub } from "../../src/server/hub.ts";
import type { Link } from "../../src/server/link.ts";
import { openKeeper } from "../../src/server/opening.ts";
import { Record } from "../../src/server/record.ts";
import type { Facts } from "../../src/server/tools.ts";
import { createTools } from "../../src/server/tools.ts";
import { leakCheck } from "../support/leak-check.ts";
import { FakeClock, FakeDisk, turns } from "./world.ts";

leakCheck();

const START = "k3vq7m2a";

interface Vector {
  readonly name: string;
  readonly steps: readonly string[];
}

const vectors: Vector[] = [
  ...readFileSync("docs/reference/protocol.md", "utf8").matchAll(/```vector (.*)\n([^`]*)```/g),
].map(([, name, text]) => ({ name: name as string, steps: (text as string).trimEnd().split("\n") }));

/** Random, and so in this document. */
const STATE = "bq3x6l7mz2k4dw5hynr7ocpvta";

class Stage {
  readonly clock = new FakeClock();
  disk = new FakeDisk();
  hub!: Hub;
  readonly #connections = new Map<string, { link: Link; got: string[]; closed: boolean }>();

  async start(access: Access = OPEN): Promise<void> {
    const log = (message: string, error?: unknown): void => {
      // a revocation is told, and is no fault
      if (error !== undefined) throw new Error(`${message}: ${error}`);
    };
    const { clock, disk } = this;
    const record = new Record({ clock });
    const opened = await openKeeper({
      clock,
      disk,
      sessionMs: 30_000,
      remote: false,
      probe: () => "running",
      log,
      record,
    });
    const { keeper: backend, sessions } = opened;
    const load = { connections: 2, sessions: 2, held: 0, waiting: 0 };
    const facts = (): Facts => ({
      version: "0.1.0",
      protocol: 1,
      start: START,
      upMs: 86_400_000,
      wallMs: clock.wall(),
      reclaimMs: 0,
      why: "",
      store: "table",
      load,
    });
    const tools = createTools({ record, facts });
    this.hub = new Hub({ backend, sessions, clock, start: START, version: "0.1.0", log, tools, access });
  }

  at(name: string): { link: Link; got: string[]; closed: boolean } {
    let connection = this.#connections.get(name);
    if (connection === undefined) {
      const made = { got: [] as string[], closed: false };
      const link = this.hub.accept(
        {
          write: (text) => {
            expect(text.endsWith("\n")).toBe(true);
            made.got.push(...text.slice(0, -1).split("\n"));
          },
          close: () => {
            made.closed = true;
          },
        },
        { local: true, address: "" },
      );
      connection = Object.assign(made, { link });
      this.#connections.set(name, connection);
    }
    return connection;
  }

  /** Every line that came was expected. */
  rest(): string[] {
    return [...this.#connections.values()].flatMap(({ got }) => got);
  }
}

async function play(step: string, stage: Stage): Promise<void> {
  const [, who, what, rest] = /^(?:([A-Z])([>:<]) |-- )(.*)$/.exec(step) ?? [];
  if (who === undefined) return direct(rest as string, stage);
  const connection = stage.at(who);
  if (what === ">") connection.link.lines([rest as string]);
  else if (what === "<") await receive(rest as string, connection);
  else if (rest === "end") connection.link.ended();
  else if (rest === "closed") expect(connection.closed).toBe(true);
  else throw new Error(`no such step: ${step}`);
}

async function direct(what: string, stage: Stage): Promise<void> {
  const pause = /^(\d+) s pass(?:es)?$/.exec(what);
  if (pause !== null) return stage.clock.pass(Number(pause[1]) * 1_000);
  const known = /^the server knows "(.*)" as (.*), who may hold "(.*)" for (\d+) s$/.exec(what);
  if (known !== null) {
    const [, credential, name, prefix, seconds] = known as unknown as [string, string, string, string, string];
    const rules = [{ prefix, rights: ["acquire", "inspect"] as const, maxHoldMs: Number(seconds) * 1_000 }];
    // nothing was there before
    stage.disk = new FakeDisk();
    return stage.start(createAccess([{ name, hashes: [hashOf(credential)], rules }]));
  }
  const crash = /^the server has crashed; "(.*)" may hold something$/.exec(what);
  if (crash === null) throw new Error(`no such step: ${what}`);
  stage.disk.note({ id: crash[1] as string, local: true, label: "", pid: null, pidStart: null });
  await stage.start();
}

async function receive(line: string, { got }: { got: string[] }): Promise<void> {
  // what needs a write comes a few turns later
  if (got.length === 0) await turns(40);
  const first = got.shift();
  if (line === "hello") expect(decodeWelcome(first as string)).toMatchObject({ protocol: 1, start: START });
  else expect(first?.replace(/"state":\{"id":"[a-z2-7]{26}"/, `"state":{"id":"${STATE}"`)).toBe(line);
}

test.each(vectors)("$name", async ({ steps }) => {
  const stage = new Stage();
  await stage.start();
  for (const step of steps) await play(step, stage);
  await turns();
  expect(stage.rest()).toEqual([]);
});

test("what the vectors show the client's side understands", () => {
  const lines = vectors.flatMap(({ steps }) =>
    steps.filter((step) => /^[A-Z]< /.test(step)).map((step) => step.slice(3)),
  );
  const seen = new Set<string>();
  for (const line of lines.filter((it) => it !== "hello")) {
    if (line.startsWith('{"hello"')) seen.add(decodeWelcome(line).start);
    else if (line.startsWith("{")) seen.add(decodeRefusal(line)?.code as string);
    else {
      for (const frame of decodeLine(line, START).slice(1) as unknown[][]) {
        const [verb, , result] = frame;
        seen.add(verb as string);
        if (verb === "push") decodeAnswer(result);
        else if (verb === "events") expect(decodeWatched(frame).events.length).toBeGreaterThan(0);
        else if (verb === "ok" && Array.isArray(result) && Array.isArray(result[0]) && result[0].length > 7)
          expect(decodeEvents(result)).toHaveLength(result.length);
        else if (verb === "ok" && typeof result === "object" && !Array.isArray(result))
          expect(decodeInfo(result).version).toBe(VERSION);
        else if (verb === "ok" && Array.isArray(result) && typeof result[0] === "string") decodeAnswer(result);
        else if (verb === "ok" && Array.isArray(result) && typeof result[1] === "boolean") decodePage(result);
      }
    }
  }
  expect([...seen].sort()).toEqual([START, "AUTH", "PROTOCOL", "VERSION", "error", "events", "ok", "push"].sort());
});

test("there are vectors, and the page names the version", () => {
  expect(vectors.length).toBeGreaterThan(12);
  expect(JSON.parse(readFileSync("package.json", "utf8")).version).toBe(VERSION);
});
