// First lines of every kind to a server that requires credentials: only a valid credential is admitted.

import { expect, test } from "vitest";
import { decodeConnectionError } from "../../src/protocol/handshake.ts";
import { randomId } from "../../src/util/ids.ts";
import { checkLeaksAfterEach } from "../support/leak-check.ts";
import { seededRandom } from "../support/seeded-random.ts";
import { cleanUpAfterEach } from "../support/server-fixture.ts";
import { ServerHarness } from "../support/server-harness.ts";
import { createTestAccess, testAccount } from "../support/test-accounts.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const HELLO_COUNT = process.env.HOLDFAST_LONG === "1" ? 200_000 : 5_000;
const SEED = Number(process.env.HOLDFAST_SEED ?? Math.floor(Math.random() * 2 ** 31));

test(`${HELLO_COUNT} fuzzed hellos admit no client without a credential (seed ${SEED})`, async () => {
  const random = seededRandom(SEED);
  const ana = testAccount("ana");
  const harness = new ServerHarness({ access: createTestAccess(ana) });
  await harness.start();
  const { service } = harness;
  if (service === null) throw new Error("the world has started");
  const similarCredential = (): string => {
    const index = random.int(ana.credential.length);
    return `${ana.credential.slice(0, index)}${random.pick(["", "a", "A", "\u0000", " "])}${ana.credential.slice(index + 1)}`;
  };
  const unusualCredentials: readonly unknown[] = [
    null,
    0,
    true,
    "",
    [],
    {},
    "__proto__",
    [ana.credential],
    { toString: 1 },
    "x".repeat(2_000),
  ];
  const counts = { in: 0, out: 0 };
  const codes = new Set<string>();
  for (let round = 0; round < HELLO_COUNT; round++) {
    const lines: string[] = [];
    const stream = { write: (text: string) => void lines.push(text), close: () => undefined };
    const connection = service.accept(stream, {
      isLocal: random.chance(0.5),
      address: random.pick(["", "10.0.0.1", "::1", "?"]),
    });
    const isRight = random.chance(0.05);
    const guess = random.chance(0.5) ? similarCredential() : random.pick(unusualCredentials);
    const credential = isRight ? ana.credential : guess === ana.credential ? "" : guess;
    const hello: Record<string, unknown> = { protocol: 1, session: randomId(), credential };
    const isWhole = isRight || random.chance(0.5);
    if (!isWhole)
      hello[random.pick(["protocol", "session", "keepSession", "probe", "oldest", "label", "__proto__"])] =
        random.pick(unusualCredentials);
    let text = JSON.stringify({ hello });
    if (!isWhole && random.chance(0.3)) text = text.slice(0, random.int(text.length));
    connection.receive([text, `["${service.runId}",["claim",1,"${randomId()}",["k${round}"],30000,{"wait":false}]]`]);
    const hasOpened = lines.some((line) => line.includes('"held"'));
    expect(hasOpened, text.replaceAll(ana.credential, "...")).toBe(isRight);
    counts[hasOpened ? "in" : "out"]++;
    if (random.chance(0.1)) await harness.clock.advance(10);
    const refusal = lines
      .map((line) => decodeConnectionError(line.trimEnd()))
      .find((protocolError) => protocolError !== null);
    if (refusal != null) codes.add(refusal.code);
    connection.transportClosed();
  }
  expect(counts.in).toBeGreaterThan(HELLO_COUNT / 50);
  for (const code of ["AUTH", "PROTOCOL", "VERSION", "LIMIT"]) expect(codes).toContain(code);
  // nothing of all that is left
  await harness.clock.advance(60_000);
  expect([service.connectionLimiter.open, service.connectionLimiter.unauthenticated]).toEqual([0, 0]);
  expect(harness.inspect().sessions.size).toBe(0);
  expect(harness.logLines.join("\n")).not.toContain(ana.credential);
});

test("the hellos of a probe and of a keep-session connection admit none either", async () => {
  const harness = new ServerHarness({ access: createTestAccess(testAccount("ana")) });
  await harness.start();
  for (const extra of [{ probe: true }, { keepSession: true }]) {
    const lines: string[] = [];
    const stream = { write: (text: string) => void lines.push(text), close: () => undefined };
    const connection = harness.service?.accept(stream, { isLocal: true, address: "" });
    const claim = `["${harness.service?.runId}",["claim",1,"${randomId()}",["k"],30000]]`;
    connection?.receive([JSON.stringify({ hello: { protocol: 1, session: randomId(), ...extra } }), claim]);
    expect(lines.join("")).not.toContain("held");
    expect(connection?.isReadable).toBe(false);
  }
  expect(harness.inspect().records.size).toBe(0);
});
