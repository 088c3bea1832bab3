// Clients and servers of different versions meet, as in a rolling upgrade.

import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { lockServer } from "../../../src/drivers/server/driver.ts";
import type { Connector } from "../../../src/net/transport.ts";
import { decodeServerHello, ProtocolError } from "../../../src/protocol/handshake.ts";
import type { Connection } from "../../../src/server/connection/connection.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { parseRawAddress, RawClient } from "../../support/raw-client.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, expectHeld, makeClaim, onCleanup, startServer } from "../../support/server-fixture.ts";
import { ServerHarness } from "../../support/server-harness.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const RECORDINGS_DIRECTORY = "test/integration/server/recorded";

type RecordedStep =
  | { readonly on: string; readonly client: string }
  | { readonly on: string; readonly server: string }
  | { readonly step: "restart" };

/** When it was recorded, in milliseconds: token floors are derived from it. */
const RECORDED_AT = 1_795_264_600_000;

class ConversationReplay {
  readonly harness = new ServerHarness();
  readonly #links = new Map<string, { link: Connection; got: string[] }>();

  async start(): Promise<void> {
    this.harness.clock.wallOffsetMs = RECORDED_AT;
    await this.harness.start();
  }

  async run(step: RecordedStep): Promise<void> {
    // a millisecond for each, so that tokens and arrivals differ
    await this.harness.clock.advance(1);
    if ("step" in step) {
      this.#links.clear();
      await this.harness.stop();
      return this.harness.start();
    }
    if ("client" in step) return this.#send(step.on, step.client);
    await flushEventLoop(40);
    const connection = this.#links.get(step.on);
    if (step.server.startsWith('{"hello"'))
      return expectCompatible(JSON.parse(step.server), JSON.parse(takeLines(connection?.got)));
    for (const frame of (JSON.parse(step.server) as unknown[]).slice(1)) {
      const reply = this.#frame(connection?.got ?? [], frame as readonly unknown[]);
      expectCompatible(frame, reply);
    }
  }

  #send(on: string, line: string): void {
    if (line.startsWith('{"hello"')) {
      const lines: string[] = [];
      const stream = {
        write: (text: string) => void lines.push(...text.trimEnd().split("\n")),
        close: () => undefined,
      };
      const connection = this.harness.service?.accept(stream, { isLocal: true, address: "" }) as Connection;
      this.#links.set(on, { link: connection, got: lines });
      return connection.receive([line]);
    }
    const start = this.harness.service?.runId as string;
    const currentLine = line
      .replace(/^\["[a-z0-9]+"/, `["${start}"`)
      .replace(/"(\d{10,})"/g, (_, token: string) => `"${tokenPattern.get(token) ?? token}"`);
    this.#links.get(on)?.link.receive([currentLine]);
  }

  /** The frame that the recorded client would take for this one: the reply to that call, or that push. It ignores other frames. */
  #frame(got: string[], frame: readonly unknown[]): unknown {
    const frames = got
      .filter((line) => line.startsWith("["))
      .flatMap((line) => (JSON.parse(line) as unknown[][]).slice(1));
    const reply = frames.find(
      (it) => (it[0] === "ok" || it[0] === "error" || it[0] === frame[0]) && it[1] === frame[1],
    );
    expect(reply, `something for ${JSON.stringify(frame)} in ${got.join("\n")}`).toBeDefined();
    return reply;
  }
}

function takeLines(got: string[] | undefined): string {
  const line = got?.shift();
  if (line === undefined) throw new Error("nothing came");
  return line;
}

/** Maps today's tokens to the recorded ones. */
const tokenPattern = new Map<string, string>();

/** Does `now` match what a reader of `then` expects? Further elements and fields are ignored, times and tokens differ. */
function expectCompatible(recorded: unknown, now: unknown, path = ""): void {
  const location = `at ${path || "the top"}`;
  if (Array.isArray(recorded)) {
    expect(Array.isArray(now) && now.length >= recorded.length, location).toBe(true);
    const loose = typeof recorded[0] === "string" && /^[a-z2-7]{10}$/.test(recorded[0]) && recorded.length >= 6;
    for (const [index, part] of recorded.entries()) {
      // the last element of a listed claim is its age
      if (loose && index === 5) expect(typeof (now as unknown[])[index], location).toBe("number");
      else expectCompatible(part, (now as unknown[])[index], `${path}/${index}`);
    }
  } else if (typeof recorded === "object" && recorded !== null) {
    for (const [name, part] of Object.entries(recorded)) {
      expectCompatible(part, (now as Record<string, unknown>)[name], `${path}/${name}`);
    }
  } else if (path.endsWith("/runId") || path.endsWith("/version")) expect(typeof now, location).toBe("string");
  else if (typeof recorded === "string" && /^\d{10,}$/.test(recorded)) {
    expect(now, location).toMatch(/^\d{10,}$/);
    expect(tokenPattern.get(recorded) ?? now, location).toBe(now);
    tokenPattern.set(recorded, now as string);
  } else if (typeof recorded === "number" && recorded >= 1_000 && !path.includes("/limits"))
    expect(typeof now, location).toBe("number");
  else if (path.includes("/limits")) expect(now as number, location).toBeGreaterThanOrEqual(recorded as number);
  else expect(now, location).toEqual(recorded);
}

const recordingFiles = readdirSync(RECORDINGS_DIRECTORY).filter((name) => name.endsWith(".jsonl"));

test.each(recordingFiles)("today's server answers a recorded client (%s) as the recorded server did", async (name) => {
  const steps = readFileSync(`${RECORDINGS_DIRECTORY}/${name}`, "utf8").trimEnd().split("\n");
  const replay = new ConversationReplay();
  await replay.start();
  for (const step of steps) await replay.run(JSON.parse(step) as RecordedStep);
  expect(replay.harness.inspect().records.size).toBe(0);
});

test("every version of the protocol up to the current one has a recording", () => {
  expect(recordingFiles).toContain("version-1.jsonl");
});

test.each(recordingFiles)("today's client understands what a recorded server (%s) reported about itself", (name) => {
  const lines = readFileSync(`${RECORDINGS_DIRECTORY}/${name}`, "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as RecordedStep);
  const hellos = lines.filter((step) => "server" in step && step.server.startsWith('{"hello"'));
  expect(hellos.length).toBeGreaterThan(0);
  for (const step of hellos) {
    expect(decodeServerHello((step as { server: string }).server).limits.lineBytes).toBe(262_144);
  }
});

async function connectRaw(): Promise<RawClient> {
  const it = await startServer();
  const client = await RawClient.connect(parseRawAddress(it.addresses[0] as string));
  onCleanup(() => client.end());
  return client;
}

test("a client of a later version that also speaks this one is served; its unknown fields are ignored", async () => {
  const rawClient = await connectRaw();
  await rawClient.sendHello({
    protocol: 3,
    oldest: 1,
    dialect: "x",
    credential: null,
    pid: { in: "a container" },
    traits: ["new"],
  });
  expect(rawClient.serverHello.protocol).toBe(1);
  const id = "a".repeat(26);
  const reply = await rawClient.call("claim", id, ["k"], 30_000, { priority: 7, tokens: 2 }, "something new", {
    else: [],
  });
  expect(reply).toMatchObject({ 0: "held", 2: 2 });
  expect(await rawClient.call("release", [id], { why: "done" })).toEqual([1]);
  expect(await rawClient.call("ping", { sentAt: 5 })).toEqual([]);
});

test.each([
  ["later", { protocol: 2 }],
  ["later, and speaks nothing older", { protocol: 3, oldest: 2 }],
  ["earlier", { protocol: 0 }],
  ["named by a word", { protocol: "1" }],
  ["not named", { protocol: undefined }],
  ["later, its oldest no number", { protocol: 2, oldest: "1" }],
])("a version that is %s is refused with the versions that the server speaks", async (_, hello) => {
  const rawClient = await connectRaw();
  await expect(rawClient.sendHello(hello)).rejects.toThrow("this server speaks version 1 of the protocol");
  await rawClient.waitUntilClosed();
  expect(rawClient.refusal).toBe("VERSION");
});

/** A server of another version, as the client sees it: it sends this hello and grants every claim with unknown extra fields. */
function replayHello(hello: object): Connector {
  const connect: Connector["connect"] = (events) => {
    const sendText = (text: string): void => void setImmediate(() => events.onData(Buffer.from(`${text}\n`)));
    return {
      write(text) {
        for (const line of String(text).trimEnd().split("\n")) {
          if (line.startsWith('{"hello"')) sendText(JSON.stringify({ hello, motd: "more" }));
          else {
            const [start, ...frames] = JSON.parse(line) as [string, ...[string, number, ...unknown[]][]];
            for (const [verb, n] of frames) {
              const result =
                verb === "claim" ? ["held", "1700000000000000", 1, 30_000, { shard: 3 }] : [1, { more: true }];
              sendText(
                JSON.stringify([start, ["announce", { a: 1 }], ["ok", n, verb === "release" ? [1] : result, "extra"]]),
              );
            }
          }
        }
      },
      close: () => undefined,
      keepAlive: () => undefined,
    };
  };
  return { url: "a server", connect };
}

const WELCOME = {
  protocol: 1,
  version: "9.0.0",
  runId: "k3vq7m2a",
  sessionMs: 30_000,
  endsWithConnection: true,
  traits: {
    lease: { claim: true, sessionMs: 30_000, endsWithConnection: true, epochs: 3 },
    manyKeys: true,
    permits: "any",
    fencing: true,
    fifo: true,
    durability: "restart",
    recall: false,
    replicas: 5,
  },
  recoveryRemainingMs: 0,
  limits: { lineBytes: 262_144, locks: 128, tokens: 1_024, pageSize: 1_000, wishes: 3 },
  features: ["history", "x"],
};

test("the client works with a server whose hello, answers and frames have unknown fields", async () => {
  const driver = lockServer({ connector: replayHello(WELCOME), random: () => 0 });
  onCleanup(() => driver.close());
  await driver.open(NO_EVENTS);
  const claim = makeClaim("k");
  expectHeld(await driver.claim(claim));
  expect(await driver.release(toReleases(claim))).toEqual([true]);
});

test("the client reports a server that speaks another version correctly", async () => {
  const driver = lockServer({
    connector: replayHello({ ...WELCOME, protocol: 2 }),
    random: () => 0,
    connectTimeout: 500,
  });
  onCleanup(() => driver.close());
  await expect(driver.open(NO_EVENTS)).rejects.toThrow("the peer is not a Holdfast server of this version");
  expect(() => decodeServerHello("{}")).toThrow(ProtocolError);
  for (const line of ["", "220 mail.example ESMTP", "[]", "null", '{"error":1}']) {
    expect(() => decodeServerHello(line)).toThrow(/^the peer is not a Holdfast server$/);
  }
});
